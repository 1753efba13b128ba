package dev.loupe.cli.weights;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.TinyModel;
import dev.loupe.cli.Ran;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.LlmCFile;
import dev.loupe.weights.NanoGptFile;
import dev.loupe.weights.RandomCheckpoint;
import dev.loupe.weights.TensorFlowFiles;
import dev.loupe.weights.TorchWriter;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.tensor.StoredTensor;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Models of other formats, with tokenizers of theirs, compute what the model that they hold does.
 */
class FormatsTest {
  @TempDir Path folder;
  private TinyModel model;
  private Path other;

  @BeforeEach
  void make() throws IOException {
    model = TinyModel.in(folder.resolve("model"));
    other = Files.createDirectory(folder.resolve("other"));
  }

  /** Ids, text, logprobs: all of a run. */
  private static String run(Path source) {
    Ran ran =
        Ran.loupe(
                "generate",
                "ROMEO: né",
                "-m",
                source,
                "-n",
                20,
                "--greedy",
                "--logprobs",
                3,
                "--json")
            .well();
    return ran.json().getFirst().get("tokens").toString();
  }

  @Test
  void llmC() throws IOException {
    Path file = other.resolve("model_00000100.bin");
    try (Checkpoint checkpoint = Checkpoint.open(model.folder());
        Tokenizer tokenizer = Tokenizer.open(checkpoint, Optional.empty())) {
      LlmCFile.write(checkpoint, false, 100, file);
      List<byte[]> tokens = new ArrayList<>();
      for (int id = 0; id < tokenizer.size(); id++) {
        tokens.add(tokenizer.bytes(id));
      }
      LlmCFile.writeTokenizer(tokens, 2, other.resolve("gpt2_tokenizer.bin"));
    }
    assertEquals(run(model.folder()), run(file));
    assertEquals(run(model.folder()), run(other));
    convertsBack(file);
  }

  @Test
  void tensorFlow() throws IOException {
    try (Checkpoint checkpoint = Checkpoint.open(model.folder())) {
      TensorFlowFiles.write(checkpoint, 1, false, other);
    }
    JsonObject bpe =
        JsonParser.parseString(Files.readString(model.tokenizer()))
            .getAsJsonObject()
            .getAsJsonObject("model");
    Files.writeString(other.resolve("encoder.json"), bpe.get("vocab").toString());
    StringBuilder merges = new StringBuilder("#version: 0.2\n");
    bpe.getAsJsonArray("merges")
        .forEach(
            merge ->
                merges
                    .append(
                        merge.isJsonArray()
                            ? merge.getAsJsonArray().get(0).getAsString()
                                + " "
                                + merge.getAsJsonArray().get(1).getAsString()
                            : merge.getAsString())
                    .append('\n'));
    Files.write(other.resolve("vocab.bpe"), merges.toString().getBytes(UTF_8));
    assertEquals(run(model.folder()), run(other));
    assertEquals(run(model.folder()), run(other.resolve("model.ckpt")));
    assertEquals(run(model.folder()), run(other.resolve("model.ckpt.index")));
    convertsBack(other, "vocab.json", "merges.txt", "tokenizer_config.json"); // by today's names
  }

  /** By the structure that ggml's GPT-2 example reads: matrices [out, in], extents backwards. */
  @Test
  void ggml() throws IOException {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    try (Checkpoint checkpoint = Checkpoint.open(model.folder());
        Tokenizer tokenizer = Tokenizer.open(checkpoint, Optional.empty())) {
      Gpt2Config c = checkpoint.config();
      int words = c.vocabSize();
      for (int number :
          List.of(0x67676d6c, words, c.nPositions(), c.nEmbd(), c.nHead(), c.nLayer(), 0, words)) {
        little(out, number);
      }
      for (int id = 0; id < words; id++) {
        byte[] token = tokenizer.contains(id) ? tokenizer.bytes(id) : new byte[0];
        little(out, token.length);
        out.writeBytes(token);
      }
      for (StoredTensor tensor : checkpoint.tensors()) {
        boolean turned = tensor.name().startsWith("h.") && tensor.shape().size() == 2;
        byte[] name = ggmlName(tensor.name()).getBytes(UTF_8);
        little(out, tensor.shape().size());
        little(out, name.length);
        little(out, 0); // f32
        for (long extent : turned ? tensor.shape() : tensor.shape().reversed()) {
          little(out, (int) extent);
        }
        out.writeBytes(name);
        float[] values = new float[(int) tensor.elements()];
        tensor.read(0, values, 0, values.length);
        int columns = turned ? tensor.shape().getLast().intValue() : values.length;
        for (int column = 0; column < (turned ? columns : 1); column++) {
          for (int i = 0; i < values.length; i += turned ? columns : 1) {
            little(out, Float.floatToRawIntBits(values[i + column]));
          }
        }
      }
    }
    Path file = Files.write(other.resolve("ggml-model.bin"), out.toByteArray());
    assertEquals(run(model.folder()), run(file));
    convertsBack(file);
  }

  private static void little(ByteArrayOutputStream out, int number) {
    out.writeBytes(ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(number).array());
  }

  /** {@code h.0.attn.c_attn.weight} is {@code model/h0/attn/c_attn/w}; norms have g, not w. */
  private static String ggmlName(String name) {
    String path = "model/" + name.replaceFirst("^h\\.", "h").replace('.', '/');
    String weight = name.contains("ln_") ? "g" : "w";
    return name.startsWith("wte") || name.startsWith("wpe")
        ? path.replace("/weight", "")
        : path.replace("/weight", "/" + weight).replace("/bias", "/b");
  }

  @Test
  void pyTorch() throws IOException {
    Files.copy(model.folder().resolve("config.json"), other.resolve("config.json"));
    Files.copy(model.tokenizer(), other.resolve("tokenizer.json"));
    for (boolean old : new boolean[] {false, true}) {
      try (Checkpoint checkpoint = Checkpoint.open(model.folder())) {
        TorchWriter.write(checkpoint, old, other.resolve("pytorch_model.bin"));
      }
      assertEquals(run(model.folder()), run(other));
    }
    convertsBack(other.resolve("pytorch_model.bin"));
  }

  @Test
  void nanoGpt() throws IOException {
    Files.copy(model.tokenizer(), other.resolve("tokenizer.json"));
    Path file = other.resolve("ckpt.pt");
    try (Checkpoint checkpoint = Checkpoint.open(model.folder())) {
      NanoGptFile.write(checkpoint, file);
    }
    String[] ids = {"generate", "--ids", "5,17,3", "-n", "9", "--greedy", "--logprobs", "3"};
    String tanh = ids(ids, "-m", model.folder(), "-q");
    assertEquals(tanh, ids(ids, "-m", file, "--activation", "gelu_new", "-q"));
    String erf = ids(ids, "-m", model.folder(), "--activation", "gelu", "-q");
    assertNotEquals(tanh, erf);
    assertEquals(erf, ids(ids, "-m", other, "-q"));
    assertTrue(Ran.loupe("generate", "a", "-m", other, "-n", 1).well().err().contains("erf"));
  }

  /** What a run says of its tokens. */
  private static String ids(String[] command, Object... more) {
    List<Object> all = new ArrayList<>(List.of((Object[]) command));
    all.addAll(List.of(more));
    all.add("--json");
    return Ran.loupe(all.toArray()).well().json().getFirst().get("tokens").toString();
  }

  /** A model of characters writes and reads what its meta.pkl lists, and nothing else. */
  @Test
  void nanoGptOfCharacters() throws IOException {
    Gpt2Config config =
        new Gpt2Config(1, 2, 8, 16, 6, 32, Activation.GELU, 1e-5f, true, false, -1, -1);
    RandomCheckpoint.write(config, 1, other, RandomCheckpoint.Layout.PLAIN, Progress.NONE);
    Path file = Files.createDirectory(other.resolve("out")).resolve("ckpt.pt");
    try (Checkpoint checkpoint = Checkpoint.open(other)) {
      NanoGptFile.write(checkpoint, file);
    }
    NanoGptFile.writeMeta("\n aé€😀", file.resolveSibling("meta.pkl"));
    Ran ran = Ran.loupe("generate", "a é😀", "-m", file, "-n", 4, "--seed", 1, "--json").well();
    List<Integer> ids = new ArrayList<>();
    ran.json()
        .getFirst()
        .getAsJsonArray("tokens")
        .forEach(token -> ids.add(token.getAsJsonObject().get("id").getAsInt()));
    assertEquals(List.of(2, 1, 3, 5), ids.subList(0, 4));
    assertEquals(8, ids.size());
    Ran unknown = Ran.loupe("generate", "ab", "-m", file, "-n", 4);
    assertTrue(unknown.err().contains("U+0062"), unknown.err());
  }

  /** nanoGPT's own vocabulary is GPT-2's, padded. */
  @Test
  void nanoGptOfWords() throws IOException {
    Gpt2Config config =
        new Gpt2Config(1, 2, 8, 16, 50304, 32, Activation.GELU, 1e-5f, true, false, -1, -1);
    RandomCheckpoint.write(config, 1, other, RandomCheckpoint.Layout.PLAIN, Progress.NONE);
    Path file = Files.createDirectory(other.resolve("out")).resolve("ckpt.pt");
    try (Checkpoint checkpoint = Checkpoint.open(other)) {
      NanoGptFile.write(checkpoint, file);
    }
    Ran ran = Ran.loupe("generate", "Hello world", "-m", file, "-n", 4, "--json").well();
    String tokens = ran.json().getFirst().get("tokens").toString();
    assertTrue(tokens.contains("\"id\":15496") && tokens.contains("\"id\":995"), tokens);
  }

  /** As a Hugging Face folder, with a tokenizer.json that was made. */
  private void convertsBack(Path source) throws IOException {
    convertsBack(source, "tokenizer.json");
  }

  private void convertsBack(Path source, String... tokenizer) throws IOException {
    List<String> names = new ArrayList<>(List.of("config.json", "model.safetensors"));
    names.addAll(List.of(tokenizer));
    names.sort(null);
    Path back = folder.resolve("back");
    Ran.loupe("weights", "convert", source, back).well();
    assertEquals(names, Ran.names(back));
    assertEquals(run(model.folder()), run(back));
    String verified = Ran.loupe("weights", "verify", model.folder(), back).well().out();
    assertTrue(verified.startsWith("equal: 40 tensors"), verified);
  }
}
