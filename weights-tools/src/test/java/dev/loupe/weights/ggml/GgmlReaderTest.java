package dev.loupe.weights.ggml;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.GgufBytes;
import dev.loupe.weights.GgufModel;
import dev.loupe.weights.Refusal;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

public class GgmlReaderTest {
  private static final List<String> TOKENS =
      List.of("a", "b", "é", "ab", "abab", "<|endoftext|>", "c");

  @TempDir Path folder;

  /** A file by the structure that ggml's example reads. */
  public static final class File {
    int vocabulary = TOKENS.size();
    int again = TOKENS.size();
    int positions = 5;
    int width;
    int layers = 1;
    int ftype;
    List<byte[]> tokens = Arrays.asList(bytes());
    private final GgufBytes.Out tensors = new GgufBytes.Out();

    /** The model of {@code gguf}, whose widths are C and 4 C. */
    public File(GgufModel gguf, int width, int ftype) {
      this.width = width;
      this.ftype = ftype;
      gguf.parts.forEach(
          (name, part) -> tensor(named(name), part.type(), part.innermostFirst(), part.data()));
    }

    /** Every byte of the tokens; "é" is two that BPE joins, so both are tokens, too. */
    private static byte[][] bytes() {
      return TOKENS.stream().map(token -> token.getBytes(UTF_8)).toArray(byte[][]::new);
    }

    void tensor(String name, int type, List<Integer> innermostFirst, byte[] data) {
      byte[] utf8 = name.getBytes(UTF_8);
      var _ = tensors.number(innermostFirst.size(), 4).number(utf8.length, 4).number(type, 4);
      innermostFirst.forEach(extent -> tensors.number(extent, 4));
      tensors.writeBytes(utf8);
      tensors.writeBytes(data);
    }

    private static String named(String huggingFace) {
      Map<String, String> outside =
          Map.of(
              "wte.weight", "model/wte",
              "wpe.weight", "model/wpe",
              "ln_f.weight", "model/ln_f/g",
              "ln_f.bias", "model/ln_f/b",
              "lm_head.weight", "model/lm_head");
      if (outside.containsKey(huggingFace)) {
        return outside.get(huggingFace);
      }
      String[] part = huggingFace.split("\\.", -1);
      boolean norm = part[2].startsWith("ln");
      String last = part[part.length - 1].equals("bias") ? "b" : norm ? "g" : "w";
      return "model/h" + part[1] + "/" + part[2] + (norm ? "" : "/" + part[3]) + "/" + last;
    }

    public byte[] make() {
      GgufBytes.Out out = new GgufBytes.Out();
      var _ = out.number(0x67676d6c, 4).number(vocabulary, 4).number(positions, 4);
      var _ = out.number(width, 4).number(2, 4).number(layers, 4).number(ftype, 4);
      var _ = out.number(again, 4);
      for (byte[] token : tokens) {
        out.number(token.length, 4).writeBytes(token);
      }
      ByteArrayOutputStream all = new ByteArrayOutputStream();
      all.writeBytes(out.toByteArray());
      all.writeBytes(tensors.toByteArray());
      return all.toByteArray();
    }
  }

  private static GgufModel model(int type) {
    return new GgufModel(type, 32, 128, 5, TOKENS.size(), true);
  }

  private Path write(File file) throws IOException {
    return Files.write(folder.resolve("ggml-model.bin"), file.make());
  }

  @ParameterizedTest
  @CsvSource({"0, 0", "1, 1", "2, 2002", "3, 2003", "6, 2008", "7, 2009", "8, 2007"})
  void everyTypeHoldsWhatItStandsFor(int type, int ftype) throws IOException {
    GgufModel model = model(type);
    Path file = write(new File(model, 32, ftype));
    for (Path source : List.of(file, folder)) {
      try (Checkpoint checkpoint = Checkpoint.open(source)) {
        assertEquals(
            new Gpt2Config(1, 2, 32, 5, 7, 128, Activation.GELU_NEW, 1e-5f, true, false, 5, 5),
            checkpoint.config());
        assertEquals(List.of(), checkpoint.ignored());
        model.values.forEach((name, x) -> GgufReaderTest.assertHolds(checkpoint.tensor(name), x));
      }
    }
  }

  @Test
  void itsTokensAndTheirMerges() throws IOException {
    File file = new File(model(1), 32, 1);
    file.tokens =
        List.of(
            new byte[] {'a'},
            new byte[] {'b'},
            new byte[] {(byte) 0xC3},
            new byte[] {(byte) 0xA9},
            new byte[] {'a', 'b'},
            new byte[] {(byte) 0xC3, (byte) 0xA9},
            "<|endoftext|>".getBytes(UTF_8));
    try (Checkpoint checkpoint = Checkpoint.open(write(file))) {
      Vocabulary vocabulary = checkpoint.vocabulary().orElseThrow();
      assertEquals(List.of("a b", "Ã ©"), vocabulary.merges());
      assertEquals("Ã©", vocabulary.tokens().get(5).spelling());
      assertEquals(
          new Vocabulary.Token("<|endoftext|>", Vocabulary.Kind.SPECIAL),
          vocabulary.tokens().get(6));
      assertEquals(List.of(6), checkpoint.config().eosTokenIds());
      assertEquals(List.of(), checkpoint.notes());
    }
    // é is no byte here, and its bytes are no tokens
    try (Checkpoint checkpoint = Checkpoint.open(write(new File(model(1), 32, 1)))) {
      assertEquals(java.util.Optional.empty(), checkpoint.vocabulary());
      assertEquals(1, checkpoint.notes().size());
    }
  }

  private void refused(Consumer<File> change, Object... words) throws IOException {
    File file = new File(model(2), 32, 2002);
    change.accept(file);
    Path path = write(file);
    Refusal.of(() -> Checkpoint.open(path).close(), words);
    Refusal.of(() -> Checkpoint.open(path).close(), path);
  }

  @Test
  void refusesOldBlocks() throws IOException {
    refused(f -> f.ftype = 1002, "model/wte is Q4_0 in an old layout (version 1)");
    refused(f -> f.ftype = 2, "version 0");
    // what has no blocks has no layout that could be old
    File file = new File(model(1), 32, 1);
    Checkpoint.open(write(file)).close();
  }

  @Test
  void refusesWhatDoesNotFit() throws IOException {
    refused(f -> f.again = 8, "byte 28", "it has 8 tokens and n_vocab 7", "no GPT-2");
    refused(f -> f.vocabulary = -1, "byte 4", "n_vocab is 4294967295");
    refused(f -> f.width = 34, "wte.weight is [7, 32]", "[7, 34]");
    refused(f -> f.width = 0, "n_embd");
    refused(f -> f.layers = 2, "h.1.ln_1.weight", "n_layer 2");
    refused(f -> f.layers = -3, "byte 20", "n_layer");
    refused(f -> f.positions = 6, "wpe.weight has 5 rows");
    refused(f -> f.tokens = List.of(new byte[1025]), "byte 32", "the length of token 0 is 1025");
    refused(f -> f.tensor("x", 4, List.of(1), new byte[4]), "x is stored as ggml's type Q4_2");
    refused(f -> f.tensor("x", 0, List.of(2), new byte[4]), "x", "takes 8 bytes");
    refused(f -> f.tensor("x", 0, List.of(-1), new byte[4]), "an extent", "4294967295");
    refused(
        f -> f.tensor("x", 0, List.of(1, 1, 1, 1, 1), new byte[4]), "the rank of a tensor is 5");
    refused(f -> f.tensor("x", 2, List.of(31), new byte[18]), "x is Q4_0 in rows of 31");
    int max = Integer.MAX_VALUE;
    refused(f -> f.tensor("x", 0, List.of(max, max, max, max), new byte[4]), "any file");
  }

  /** Each tensor that is cut ends the file in its middle. */
  @ParameterizedTest
  @ValueSource(ints = {3, 4, 27, 31, 32, 60, 100, 1000, 5000})
  void refusesTruncatedFiles(int length) throws IOException {
    byte[] sound = new File(model(2), 32, 2002).make();
    Path path = Files.write(folder.resolve("m.bin"), Arrays.copyOf(sound, length));
    Refusal.of(() -> Checkpoint.open(path).close(), path);
  }

  @Test
  void onnxIsOutOfScope() throws IOException {
    Path named = Files.write(folder.resolve("model.onnx"), new byte[] {1, 2, 3});
    Refusal.of(() -> Checkpoint.open(named).close(), named, "ONNX", "out of scope");
    GgufBytes.Out onnx = new GgufBytes.Out();
    var _ = onnx.number(0x08, 1).number(8, 1).number(0x12, 1).number(7, 1);
    onnx.writeBytes("pytorch".getBytes(UTF_8));
    Path content = Files.write(folder.resolve("model"), onnx.toByteArray());
    Refusal.of(() -> Checkpoint.open(content).close(), content, "ONNX", "out of scope");
    Path other = Files.write(folder.resolve("other"), new byte[] {8, 8, 8, 8, 8, 8, 8, 8, 8});
    Refusal.of(() -> Checkpoint.open(other).close(), other, "in another format");
  }
}
