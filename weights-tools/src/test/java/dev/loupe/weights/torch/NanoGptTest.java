package dev.loupe.weights.torch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.ModelFolder;
import dev.loupe.weights.NanoGptFile;
import dev.loupe.weights.PickleWriter;
import dev.loupe.weights.RandomCheckpoint;
import dev.loupe.weights.Refusal;
import dev.loupe.weights.TorchWriter;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class NanoGptTest {
  /** What nanoGPT can be: 4 C wide, erf, no bos. */
  private static final Gpt2Config CONFIG =
      new Gpt2Config(2, 5, 50, 11, 37, 200, Activation.GELU, 1e-5f, true, false, -1, -1);

  @TempDir Path temporary;
  private Path expected = Path.of("");
  private Path folder = Path.of("");

  @BeforeEach
  void model() throws IOException {
    expected =
        ModelFolder.random(
            temporary.resolve("e"),
            CONFIG,
            new RandomCheckpoint.Layout(DType.F32, false, true, false));
    folder = Files.createDirectory(temporary.resolve("out"));
  }

  private Path write(String prefix, boolean bias) throws IOException {
    TorchWriter writer = TorchWriter.plain();
    return write(
        writer, NanoGptFile.root(TorchWriter.tensors(expected), writer, prefix, bias, CONFIG));
  }

  private Path write(TorchWriter writer, Map<String, Object> root) throws IOException {
    return Files.write(folder.resolve("ckpt.pt"), writer.zip("ckpt/", root));
  }

  private void meta(@Nullable Object value) throws IOException {
    Files.write(folder.resolve("meta.pkl"), PickleWriter.of(4, value));
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "_orig_mod."})
  void opensToTheSameModel(String prefix) throws IOException {
    write(prefix, true);
    PyTorchReaderTest.assertSame(expected, folder);
    try (Checkpoint checkpoint = Checkpoint.open(folder)) {
      assertEquals(CONFIG, checkpoint.config());
      assertFalse(checkpoint.has("lm_head.weight"));
      assertTrue(checkpoint.notes().getFirst().contains("gelu (erf)"), "says what it assumed");
    }
  }

  @Test
  void absentBiasesAreZeros() throws IOException {
    write("", false);
    try (Arena arena = Arena.ofConfined();
        Checkpoint whole = Checkpoint.open(expected);
        Checkpoint checkpoint = Checkpoint.open(folder)) {
      for (StoredTensor tensor : checkpoint.tensors()) {
        byte[] bytes = tensor.data(arena).toArray(ValueLayout.JAVA_BYTE);
        if (tensor.name().endsWith(".bias")) {
          for (byte b : bytes) {
            assertEquals(0, b);
          }
        } else {
          assertEquals(-1, whole.tensor(tensor.name()).data(arena).mismatch(tensor.data(arena)));
        }
      }
    }
  }

  @Test
  void biasesMustBeThereIfSaidSo() throws IOException {
    TorchWriter writer = TorchWriter.plain();
    Map<String, Object> root =
        NanoGptFile.root(TorchWriter.tensors(expected), writer, "", false, CONFIG);
    Map<String, Object> arguments = TorchFile.dict(root.get("model_args")).orElseThrow();
    arguments.put("bias", true);
    write(writer, root);
    refused("h.0.ln_1.bias");
    arguments.put("bias", false);
    arguments.remove("n_head");
    write(writer, root);
    refused("model_args", "n_head");
    arguments.put("n_head", 3);
    write(writer, root);
    refused("model_args", "n_embd 50 is not a multiple of n_head 3");
  }

  private void refused(Object... words) {
    Refusal.of(() -> Checkpoint.open(folder).close(), words);
  }

  @Test
  void theActivationCanBeChosen() throws IOException {
    write("", true);
    try (Checkpoint checkpoint = Checkpoint.open(folder, Activation.GELU_NEW)) {
      assertEquals(Activation.GELU_NEW, checkpoint.config().activation());
      assertEquals(List.of(), checkpoint.notes());
    }
  }

  @Test
  void metaHoldsTheCharacters() throws IOException {
    write("", true);
    Map<Integer, String> itos = new LinkedHashMap<>();
    String characters = "\n !é" + "abcdefghijklmnopqrstuvwxyz";
    for (int id = 0; id < characters.length(); id++) {
      itos.put(id, characters.substring(id, id + 1));
    }
    meta(Map.of("vocab_size", itos.size(), "itos", itos, "stoi", Map.of("a", 4)));
    try (Checkpoint checkpoint = Checkpoint.open(folder)) {
      Vocabulary vocabulary = checkpoint.vocabulary().orElseThrow();
      assertEquals(List.of(), vocabulary.merges());
      assertEquals(30, vocabulary.tokens().size());
      // as GPT-2 spells a line feed, a space, and the two bytes of é
      assertEquals(new Vocabulary.Token("Ċ", Vocabulary.Kind.NORMAL), vocabulary.tokens().get(0));
      assertEquals(new Vocabulary.Token("Ġ", Vocabulary.Kind.NORMAL), vocabulary.tokens().get(1));
      assertEquals(new Vocabulary.Token("Ã©", Vocabulary.Kind.NORMAL), vocabulary.tokens().get(3));
      assertEquals(List.of(), checkpoint.config().eosTokenIds());
    }
    meta(Map.of("vocab_size", 3));
    refused("meta.pkl", "itos");
    meta(Map.of("itos", Map.of(0, "a", 2, "b")));
    refused("meta.pkl", "id 1 of 2");
    meta(null);
    refused("meta.pkl", "itos");
  }

  @Test
  void gpt2sVocabularyEndsWithItsEndOfText() throws IOException {
    Gpt2Config padded =
        new Gpt2Config(1, 2, 6, 4, 50304, 24, Activation.GELU, 1e-5f, true, false, 50256, 50256);
    Path model =
        ModelFolder.random(
            temporary.resolve("p"),
            padded,
            new RandomCheckpoint.Layout(DType.F32, false, true, false));
    TorchWriter writer = TorchWriter.plain();
    write(writer, NanoGptFile.root(TorchWriter.tensors(model), writer, "", true, padded));
    try (Checkpoint checkpoint = Checkpoint.open(folder)) {
      assertEquals(padded, checkpoint.config());
    }
  }
}
