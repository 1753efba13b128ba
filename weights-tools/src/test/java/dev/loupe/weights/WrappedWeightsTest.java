package dev.loupe.weights;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.weights.format.SafetensorsWriter;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.torch.PyTorchReaderTest;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Weights that lie inside other modules and dicts, and under other file names. */
class WrappedWeightsTest {
  @TempDir Path temporary;
  private Path expected = Path.of("");
  private Path folder = Path.of("");

  @BeforeEach
  void model() throws IOException {
    expected = temporary.resolve("e");
    ModelFolder.random(
        expected, ModelFolder.ODD, new RandomCheckpoint.Layout(DType.F32, true, false, true));
    folder = Files.createDirectory(temporary.resolve("m"));
    Files.copy(ModelFolder.config(expected), ModelFolder.config(folder));
  }

  private Map<SafetensorsWriter.Entry, byte[]> named(String model, String head) throws IOException {
    Map<SafetensorsWriter.Entry, byte[]> renamed = new LinkedHashMap<>();
    TorchWriter.tensors(expected)
        .forEach(
            (entry, data) ->
                renamed.put(
                    new SafetensorsWriter.Entry(
                        (entry.name().equals("lm_head.weight") ? head : model) + entry.name(),
                        entry.dtype(),
                        entry.shape()),
                    data));
    return renamed;
  }

  private void torch(String name, Object root, TorchWriter writer) throws IOException {
    Files.write(folder.resolve(name), writer.zip("a/", root));
  }

  private void opens() throws IOException {
    PyTorchReaderTest.assertSame(expected, folder);
  }

  private void refused(Object... words) {
    Refusal.of(() -> Checkpoint.open(folder).close(), words);
  }

  @ParameterizedTest
  @CsvSource({
    "'', ''",
    "transformer., ''",
    "transformer., transformer.",
    "module., ''",
    "module.transformer., module.",
    "_orig_mod.module.transformer., _orig_mod.module.",
    "model., ''",
    "model.transformer., model.",
    "base_model.model.transformer., base_model.model.",
    "some.body's own_wrapper.0., some.body's own_wrapper.",
  })
  void whateverStandsInFront(String model, String head) throws IOException {
    ModelFolder.write(ModelFolder.weights(folder), named(model, head));
    opens();
    Files.delete(ModelFolder.weights(folder));
    TorchWriter writer = TorchWriter.plain();
    torch("pytorch_model.bin", writer.stateDict(named(model, head)), writer);
    opens();
  }

  /** As torch.compile, FSDP and checkpointing leave them when they are given parts of a model. */
  @ParameterizedTest
  @ValueSource(
      strings = {
        "(h\\.\\d+\\.)",
        "(h\\.\\d+\\.(?:ln_1|attn|mlp)\\.)",
        "(c_attn\\.|wte\\.|lm_head\\.)",
      })
  void modulesAroundPartsOfTheModel(String part) throws IOException {
    Map<SafetensorsWriter.Entry, byte[]> renamed = new LinkedHashMap<>();
    named("model.transformer.", "model.")
        .forEach(
            (entry, data) ->
                renamed.put(
                    new SafetensorsWriter.Entry(
                        entry.name().replaceAll(part, "$1_fsdp_wrapped_module._orig_mod."),
                        entry.dtype(),
                        entry.shape()),
                    data));
    ModelFolder.write(ModelFolder.weights(folder), renamed);
    opens();
  }

  @ParameterizedTest
  @ValueSource(strings = {"state_dict", "model_state_dict", "state", "model", "a.b.c", "module"})
  void atAnyLevelOfTheDict(String place) throws IOException {
    TorchWriter writer = TorchWriter.plain();
    Object inner =
        PickleWriter.orderedDict(writer.stateDict(named("model.transformer.", "model.")));
    String[] levels = place.split("\\.", -1);
    for (int i = levels.length - 1; i >= 0; i--) {
      Map<String, Object> outer = new LinkedHashMap<>();
      outer.put("epoch", 3);
      outer.put("optimizer", Map.of("state", Map.of(0, Map.of("step", 2))));
      outer.put("args", PickleWriter.call("argparse", "Namespace", List.of()));
      outer.put(levels[i], inner);
      inner = outer;
    }
    torch("pytorch_model.bin", inner, writer);
    opens();
  }

  @Test
  void twoModelsAreTheUsersChoice() throws IOException {
    TorchWriter writer = TorchWriter.plain();
    Map<String, Object> one = writer.stateDict(named("", ""));
    torch("pytorch_model.bin", Map.of("ema", one, "model", one), writer);
    refused("more than one GPT-2", "\"ema\"", "\"model\"");
    Map<String, Object> both = new LinkedHashMap<>(writer.stateDict(named("actor.", "actor.")));
    both.putAll(writer.stateDict(named("critic.", "critic.")));
    torch("pytorch_model.bin", both, writer);
    refused("more than one GPT-2", "actor.h.0.ln_1.weight", "critic.h.0.ln_1.weight");
  }

  @Test
  void aDictThatHoldsItselfEnds() throws IOException {
    TorchWriter writer = TorchWriter.plain();
    PickleWriter.Pickled loop =
        out -> out.op('}').op('q').op(200).op('(').value("me").op('h').op(200).op('u');
    torch("pytorch_model.bin", Map.of("loop", loop), writer);
    refused("holds no dict with the tensors of a GPT-2");
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "model.fp16.safetensors",
        "gpt2-tuned.safetensors",
        "pytorch_model.fp16.bin",
        "epoch=2-step=300.ckpt",
        "weights.pkl",
        "final.pt",
        "x.pth"
      })
  void otherNamesInAFolder(String name) throws IOException {
    TorchWriter writer = TorchWriter.plain();
    if (name.endsWith("safetensors")) {
      ModelFolder.write(folder.resolve(name), named("", ""));
    } else {
      torch(name, Map.of("state_dict", writer.stateDict(named("", ""))), writer);
    }
    for (String other :
        List.of("optimizer.pt", "training_args.bin", "rng_state_0.pth", "meta.pkl")) {
      Files.writeString(folder.resolve(other), "none of a model's");
    }
    opens();
  }

  @Test
  void shardsOfAVariant() throws IOException {
    Path sharded = ModelFolder.shard(expected, 2);
    Files.move(ModelFolder.index(sharded), sharded.resolve("model.safetensors.index.fp16.json"));
    Checkpoint.open(sharded).close();
    Files.move(
        sharded.resolve("model.safetensors.index.fp16.json"), sharded.resolve("elsewhere.json"));
    for (int i = 0; i < 2; i++) {
      Files.move(
          sharded.resolve(ModelFolder.shardName(i)),
          sharded.resolve("model-0000%d-of-00002.safetensors".formatted(i + 1)));
    }
    Refusal.of(() -> Checkpoint.open(sharded).close(), "model-00001-of-00002", "no index");
  }

  /** As transformers 4 writes it: the index names both, and one shard holds both. */
  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void shardsWithATiedHead(boolean stored) throws IOException {
    ModelFolder.random(
        temporary.resolve("tied"),
        ModelFolder.ODD,
        new RandomCheckpoint.Layout(DType.F32, false, true, false));
    TorchWriter writer = TorchWriter.plain();
    Map<String, Object> dict = writer.stateDict(TorchWriter.tensors(temporary.resolve("tied")));
    StringBuilder map = new StringBuilder("\"lm_head.weight\": \"pytorch_model-1.bin\"");
    dict.keySet().forEach(name -> map.append(", \"%s\": \"pytorch_model-1.bin\"".formatted(name)));
    if (stored) {
      dict.put("lm_head.weight", dict.get("transformer.wte.weight"));
    }
    torch("pytorch_model-1.bin", dict, writer);
    Files.writeString(
        folder.resolve("pytorch_model.bin.index.json"), "{\"weight_map\": {" + map + "}}");
    Files.copy(
        ModelFolder.config(temporary.resolve("tied")),
        ModelFolder.config(folder),
        java.nio.file.StandardCopyOption.REPLACE_EXISTING);
    try (Checkpoint a = Checkpoint.open(temporary.resolve("tied"));
        Checkpoint b = Checkpoint.open(folder)) {
      Same.model(a, b);
      assertFalse(b.has("lm_head.weight"));
      assertEquals(List.of(), b.ignored());
    }
    if (!stored) {
      ModelFolder.replace(
          ModelFolder.config(folder),
          "\"tie_word_embeddings\": true",
          "\"tie_word_embeddings\": false");
      refused("has no lm_head.weight, which");
    }
  }

  /** Which of the two names a file has for the one tensor doesn't matter. */
  @Test
  void aHeadAloneIsWte() throws IOException {
    Path tied = temporary.resolve("tied");
    ModelFolder.random(tied, ModelFolder.ODD, RandomCheckpoint.Layout.PLAIN);
    try (Checkpoint a = Checkpoint.open(tied)) {
      Path headOnly = temporary.resolve("head");
      ModelFolder.random(headOnly, ModelFolder.ODD, RandomCheckpoint.Layout.PLAIN);
      ModelFolder.rewrite(
          headOnly,
          tensors -> {
            byte[] data =
                tensors.entrySet().stream()
                    .filter(tensor -> tensor.getKey().name().equals("wte.weight"))
                    .findFirst()
                    .orElseThrow()
                    .getValue();
            SafetensorsWriter.Entry wte = ModelFolder.take(tensors, "wte.weight");
            tensors.put(
                new SafetensorsWriter.Entry("lm_head.weight", wte.dtype(), wte.shape()), data);
          });
      try (Checkpoint b = Checkpoint.open(headOnly)) {
        Same.model(a, b);
        assertEquals(List.of(), b.ignored());
        assertEquals(List.of(), b.notes());
      }
      ModelFolder.replace(
          ModelFolder.config(headOnly),
          "\"tie_word_embeddings\": true",
          "\"tie_word_embeddings\": false");
      Refusal.of(() -> Checkpoint.open(headOnly).close(), "no tensor wte.weight");
    }
  }

  private void notes(String... words) throws IOException {
    try (Checkpoint checkpoint = Checkpoint.open(expected)) {
      assertEquals(
          words.length == 0 ? 0 : 1, checkpoint.notes().size(), checkpoint.notes()::toString);
      for (String word : words) {
        assertTrue(checkpoint.notes().getFirst().contains(word), checkpoint.notes()::toString);
      }
    }
  }

  @Test
  void whereConfigAndHeadSayDifferentThings() throws IOException {
    notes(); // a head of its own, as the config says
    ModelFolder.replace(
        ModelFolder.config(expected),
        "\"tie_word_embeddings\": false",
        "\"tie_word_embeddings\": true");
    notes("config ties the head", "stored with other values", "transformers 4");
    ModelFolder.rewrite(
        expected,
        tensors -> {
          byte[] wte =
              tensors.entrySet().stream()
                  .filter(tensor -> tensor.getKey().name().equals("wte.weight"))
                  .findFirst()
                  .orElseThrow()
                  .getValue();
          tensors.replaceAll((e, data) -> e.name().equals("lm_head.weight") ? wte : data);
        });
    notes(); // stored twice, with the same values
    ModelFolder.rewrite(expected, tensors -> ModelFolder.take(tensors, "lm_head.weight"));
    notes();
    ModelFolder.replace(
        ModelFolder.config(expected),
        "\"tie_word_embeddings\": true",
        "\"tie_word_embeddings\": false");
    notes("not tied", "no lm_head.weight", "wte.weight serves");
  }

  @ParameterizedTest
  @CsvSource({
    "score.weight, classifier",
    "transformer.score.weight, classifier",
    "multiple_choice_head.summary.bias, classifier",
    "lm_head.bias, not used",
    "transformer.ln_f.bias, not used"
  })
  void whatIsNotUsedIsSaid(String name, String word) throws IOException {
    ModelFolder.rewrite(
        expected,
        tensors ->
            tensors.put(new SafetensorsWriter.Entry(name, DType.F32, List.of(3L)), new byte[12]));
    notes(name, word);
  }
}
