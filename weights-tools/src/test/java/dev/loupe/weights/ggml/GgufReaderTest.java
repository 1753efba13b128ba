package dev.loupe.weights.ggml;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.GgufBytes;
import dev.loupe.weights.GgufModel;
import dev.loupe.weights.Gpt2Gguf;
import dev.loupe.weights.Inspection;
import dev.loupe.weights.ModelFolder;
import dev.loupe.weights.RandomCheckpoint;
import dev.loupe.weights.Refusal;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.format.CheckpointReader;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.tensor.StoredTensor;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class GgufReaderTest {
  @TempDir Path folder;

  private static GgufModel small() {
    return new GgufModel(1, 32, 64, 5, 7, false);
  }

  private Path write(GgufBytes file) throws IOException {
    return Files.write(folder.resolve("any.name"), file.bytes());
  }

  private void refused(Consumer<GgufBytes> change, Object... words) throws IOException {
    GgufBytes file = small().file;
    change.accept(file);
    Path path = write(file);
    Refusal.of(() -> Checkpoint.open(path).close(), words);
    Refusal.of(() -> Checkpoint.open(path).close(), path);
  }

  /** By {@code data}, by one {@code read}, and by reads of odd lengths. */
  static void assertHolds(StoredTensor tensor, float[] expected) {
    assertEquals(expected.length, tensor.elements(), tensor.name());
    float[] actual = new float[expected.length];
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment data = tensor.data(arena);
      assertEquals((long) expected.length * tensor.dtype().bytes(), data.byteSize());
      tensor.dtype().decode(data, 0, actual, 0, actual.length);
    }
    assertBits(expected, actual, tensor.name());
    tensor.read(0, actual, 0, actual.length);
    assertBits(expected, actual, tensor.name());
    for (int first = 0; first < expected.length; first += 1000) {
      int n = Math.min(37, expected.length - first);
      tensor.read(first, actual, 0, n);
      assertBits(
          Arrays.copyOfRange(expected, first, first + n), Arrays.copyOf(actual, n), tensor.name());
    }
  }

  private static void assertBits(float[] expected, float[] actual, String name) {
    int[] a = new int[expected.length];
    int[] b = new int[actual.length];
    Arrays.setAll(a, i -> Float.floatToRawIntBits(expected[i]));
    Arrays.setAll(b, i -> Float.floatToRawIntBits(actual[i]));
    assertArrayEquals(a, b, name);
  }

  @ParameterizedTest
  @CsvSource({
    "0, F32",
    "1, F16",
    "2, Q4_0",
    "3, Q4_1",
    "6, Q5_0",
    "7, Q5_1",
    "8, Q8_0",
    "10, Q2_K",
    "11, Q3_K",
    "12, Q4_K",
    "13, Q5_K",
    "14, Q6_K",
    "20, IQ4_NL",
    "21, IQ3_S",
    "23, IQ4_XS",
    "28, F64",
    "30, BF16"
  })
  void everyTypeHoldsWhatItStandsFor(int type, String name) throws IOException {
    GgufModel model = new GgufModel(type, 256, 512, 5, 7, true);
    try (Checkpoint checkpoint = Checkpoint.open(write(model.file))) {
      assertEquals(
          new Gpt2Config(1, 2, 256, 5, 7, 512, Activation.GELU_NEW, 1e-6f, true, false, -1, -1),
          checkpoint.config());
      assertEquals(model.values.size(), checkpoint.tensors().size());
      model.values.forEach((tensor, x) -> assertHolds(checkpoint.tensor(tensor), x));
      StoredTensor cAttn = checkpoint.tensor("h.0.attn.c_attn.weight");
      assertEquals(name, cAttn.storedAs());
      assertEquals(List.of(256L, 768L), cAttn.shape());
      assertTrue(checkpoint.tensor("ln_f.bias").data(Arena.ofAuto()).isMapped());
      Inspection inspection = Inspection.of(checkpoint);
      assertEquals(Inspection.Head.SEPARATE, inspection.head());
      assertTrue(inspection.text(false).contains(name), inspection.text(false));
    }
  }

  @Test
  void whatLoupeWritesItReads() throws IOException {
    Gpt2Config config =
        new Gpt2Config(2, 4, 64, 11, 37, 96, Activation.GELU_NEW, 1e-6f, true, false, 35, 36);
    Path model = ModelFolder.random(folder.resolve("m"), config, RandomCheckpoint.Layout.PLAIN);
    Vocabulary vocabulary =
        new Vocabulary(
            List.of(
                new Vocabulary.Token("Ġa", Vocabulary.Kind.NORMAL),
                new Vocabulary.Token("<|endoftext|>", Vocabulary.Kind.SPECIAL),
                new Vocabulary.Token("né", Vocabulary.Kind.ADDED)),
            List.of("Ġ a"),
            -1,
            -1,
            Optional.of("{{ messages }}\n"));
    Path file = folder.resolve("m.gguf");
    try (Checkpoint original = Checkpoint.open(model)) {
      Gpt2Gguf.write(original, vocabulary, GgmlType.F32, file, Progress.NONE);
      try (Checkpoint checkpoint = Checkpoint.open(file)) {
        assertEquals(config, checkpoint.config());
        assertEquals(List.of(), checkpoint.notes());
        assertEquals(List.of(), checkpoint.ignored());
        for (StoredTensor tensor : original.tensors()) {
          float[] x = new float[(int) tensor.elements()];
          tensor.read(0, x, 0, x.length);
          assertHolds(checkpoint.tensor(tensor.name()), x);
        }
        Vocabulary read = checkpoint.vocabulary().orElseThrow();
        assertEquals(vocabulary.merges(), read.merges());
        assertEquals(vocabulary.chatTemplate(), read.chatTemplate());
        assertEquals(37, read.tokens().size());
        assertEquals(vocabulary.tokens(), read.tokens().subList(0, 3));
        assertEquals(Vocabulary.Kind.UNUSED, read.tokens().get(3).kind());
      }
    }
  }

  @Test
  void aFolderWithOneFileOpensIt() throws IOException {
    Path file = folder.resolve("model-q8.gguf");
    Files.write(file, small().file.bytes());
    Checkpoint.open(folder).close();
    Files.write(folder.resolve("other.gguf"), small().file.bytes());
    Refusal.of(() -> Checkpoint.open(folder).close(), folder, "model-q8.gguf", "other.gguf");
  }

  @Test
  void shapesCountForMoreThanMetadata() throws IOException {
    GgufBytes file = new GgufBytes();
    file.text("general.architecture", "gpt2")
        .u32("gpt2.context_length", 1024)
        .u32("gpt2.embedding_length", 33)
        .u32("gpt2.feed_forward_length", 65)
        .u32("gpt2.attention.head_count", 1);
    file.tensor("token_embd.weight", 0, new byte[28 * 8], 8, 7);
    file.tensor("position_embd.weight", 0, new byte[20 * 8], 8, 5);
    file.tensor("blk.0.ffn_up.weight", 0, new byte[96 * 8], 8, 24);
    file.tensor("blk.0.attn_norm.weight", 0, new byte[32], 8);
    Contents contents = contents(write(file));
    assertEquals(5, contents.config.nPositions());
    assertEquals(8, contents.config.nEmbd());
    assertEquals(24, contents.config.nInner());
    assertEquals(1, contents.config.nLayer());
    assertEquals(1e-5f, contents.config.layerNormEpsilon());
    assertTrue(
        contents.notes.contains("gpt2.context_length is 1024, but the tensors say 5, which counts"),
        contents.notes::toString);
    assertEquals(4, contents.notes.size(), contents.notes::toString);
  }

  private record Contents(Gpt2Config config, List<String> notes) {}

  private static Contents contents(Path file) throws IOException {
    try (Arena arena = Arena.ofConfined()) {
      CheckpointReader.Contents c = new GgufReader().read(InputFile.map(file, arena), arena);
      return new Contents(c.config(), c.notes());
    }
  }

  /** Of two headers that differ by 32 bytes, one tells an alignment of 64 from the usual one. */
  @ParameterizedTest
  @ValueSource(ints = {0, 32})
  void metadataOfAllKindsAreSteppedOver(int padding) throws IOException {
    GgufModel model = small();
    GgufBytes file = model.file;
    file.version = 2;
    file.alignment = 64;
    file.u32("general.alignment", 64);
    int[] sizes = {1, 1, 2, 2, 4, 4, 4, 1, -1, -1, 8, 8, 8};
    for (int type = 0; type < sizes.length; type++) {
      if (sizes[type] > 0) {
        var _ = file.pair("x." + type, type).number(-1, sizes[type]);
        GgufBytes.Out three = file.pair("y." + type, 9).number(type, 4).number(3, 8);
        for (int i = 0; i < 3; i++) {
          var _ = three.number(-1, sizes[type]);
        }
      }
    }
    var _ = file.pair("x.text", 8).text("p".repeat(padding));
    var _ = file.pair("x.texts", 9).number(8, 4).number(2, 8).text("one").text("two");
    // [[1, 2], [[], ["deep"]]]
    var _ =
        file.pair("x.nested", 9)
            .number(9, 4)
            .number(2, 8)
            .number(0, 4)
            .number(2, 8)
            .number(0x0201, 2)
            .number(9, 4)
            .number(2, 8)
            .number(6, 4)
            .number(0, 8)
            .number(8, 4)
            .number(1, 8)
            .text("deep");
    try (Checkpoint checkpoint = Checkpoint.open(write(file))) {
      model.values.forEach((tensor, x) -> assertHolds(checkpoint.tensor(tensor), x));
    }
  }

  @Test
  void itsTokenizer() throws IOException {
    GgufBytes file = small().file;
    file.text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", "jais")
        .texts("tokenizer.ggml.tokens", "a", "b", "ab", "<|endoftext|>", "<x>", "[PAD5]", "c")
        .ints("tokenizer.ggml.token_type", 1, 1, 1, 3, 4, 5, 2)
        .texts("tokenizer.ggml.merges", "a b")
        .u32("tokenizer.ggml.eos_token_id", 3);
    try (Checkpoint checkpoint = Checkpoint.open(write(file))) {
      Vocabulary vocabulary = checkpoint.vocabulary().orElseThrow();
      assertEquals(List.of("a b"), vocabulary.merges());
      assertEquals(
          List.of("NORMAL", "NORMAL", "NORMAL", "SPECIAL", "ADDED", "UNUSED", "SPECIAL"),
          vocabulary.tokens().stream().map(token -> token.kind().name()).toList());
      assertEquals("<|endoftext|>", vocabulary.tokens().get(3).spelling());
      assertEquals(List.of(3), checkpoint.config().eosTokenIds());
      assertEquals(-1, checkpoint.config().bosTokenId());
      assertEquals(1, checkpoint.notes().size());
      assertTrue(checkpoint.notes().getFirst().contains("jais"), checkpoint.notes()::toString);
    }
    try (Checkpoint without = Checkpoint.open(write(small().file))) {
      assertFalse(without.vocabulary().isPresent());
      assertEquals(List.of("the file has no tokenizer of GPT-2's kind"), without.notes());
    }
  }

  @Test
  void refusesOtherModels() throws IOException {
    Path llama = write(new GgufBytes().text("general.architecture", "llama"));
    Refusal.of(() -> Checkpoint.open(llama).close(), llama, "architecture llama", "gpt2");
    Path none = write(new GgufBytes());
    Refusal.of(() -> Checkpoint.open(none).close(), none, "architecture unknown");
    refused(f -> f.version = 1, "version 1");
    refused(f -> f.version = 4, "version 4");
    refused(f -> f.version = 3 << 24, "big-endian");
    refused(f -> f.u32("split.count", 3), "one of 3 parts");
    refused(f -> f.u32("general.architecture", 3), "gives general.architecture twice");
    Path odd = write(new GgufBytes().u32("general.architecture", 3));
    Refusal.of(() -> Checkpoint.open(odd).close(), "general.architecture is not a string");
    Path empty = write(new GgufBytes().text("general.architecture", "gpt2"));
    Refusal.of(() -> Checkpoint.open(empty).close(), "token_embd.weight");
  }

  @Test
  void refusesWhatDoesNotFit() throws IOException {
    refused(f -> f.tensor("x", 0, new byte[4], 1).tensor("x", 0, new byte[4], 1), "lists x twice");
    refused(f -> f.tensor("x", 0, new byte[4], 1L << 40, 1L << 40), "x", "1099511627776");
    refused(
        f -> f.tensor("x", 0, new byte[4], 1 << 30, 1 << 30, 1 << 30, 1 << 30), "x", "any file");
    refused(f -> f.tensor("x", 0, new byte[4], 1 << 30, 4), "x", "takes 17179869184 bytes");
    refused(f -> f.tensor("x", 2, new byte[18], 33), "x is Q4_0 in rows of 33", "blocks of 32");
    refused(f -> f.tensor("x", 0, new byte[4], 1, 1, 1, 1, 1), "the rank of x", "more than 4");
    refused(f -> f.tensor("blk.1.attn_norm.weight", 0, new byte[128], 32), "n_layer 1");
    refused(f -> f.u32("general.alignment", 0), "general.alignment is 0");
    refused(f -> f.u32("general.alignment", 48), "general.alignment is 48");
    refused(f -> f.pair("x", 13), "x is of the unknown type 13");
    GgufBytes unknown = small().file.tensor("x", 99, new byte[4], 1);
    try (Checkpoint checkpoint = Checkpoint.open(write(unknown))) {
      assertEquals(List.of("x"), checkpoint.ignored());
    }
  }

  @ParameterizedTest
  @ValueSource(longs = {-1, 1L << 61, Long.MIN_VALUE, 1 << 30})
  void refusesLengthsThatNoFileHas(long length) throws IOException {
    for (int of : new int[] {0, 4, 8, 9, 12}) {
      refused(f -> f.pair("x", 9).number(of, 4).number(length, 8), "byte ");
      refused(f -> f.pair("tokenizer.ggml.tokens", 9).number(of, 4).number(length, 8), "byte");
    }
    refused(f -> f.pair("x", 8).number(length, 8), "at byte");
    refused(f -> f.pair("general.name", 8).number(length, 8), "at byte");
  }

  @Test
  void hostileNestingExhaustsNothing() throws IOException {
    refused(
        f -> {
          GgufBytes.Out out = f.pair("x", 9);
          for (int i = 0; i < 1_000_000; i++) {
            var _ = out.number(9, 4).number(1, 8);
          }
        },
        "x is nested deeper than 8");
  }
}
