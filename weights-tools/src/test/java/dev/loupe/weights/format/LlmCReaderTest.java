package dev.loupe.weights.format;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.LlmCFile;
import dev.loupe.weights.ModelFolder;
import dev.loupe.weights.RandomCheckpoint;
import dev.loupe.weights.Refusal;
import dev.loupe.weights.Same;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

public class LlmCReaderTest {
  /** Nothing square; what the format leaves open is as llm.c has it. */
  public static final Gpt2Config CONFIG =
      new Gpt2Config(2, 5, 50, 11, 37, 200, Activation.GELU_NEW, 1e-5f, true, false, -1, -1);

  private static final Path GPT2 = Path.of("..", "test-data", "gpt2");

  @TempDir Path folder;

  private Path model(DType dtype) throws IOException {
    return ModelFolder.random(
        folder.resolve("model"), CONFIG, new RandomCheckpoint.Layout(dtype, false, false, false));
  }

  private Path file() throws IOException {
    Path file = folder.resolve("gpt2_tiny.bin");
    try (Checkpoint model = Checkpoint.open(model(DType.F32))) {
      return LlmCFile.write(model, false, 0, file);
    }
  }

  private static void refused(Path source, Object... words) {
    Refusal.of(() -> Checkpoint.open(source).close(), words);
  }

  private static void poke(Path file, int at, int value) throws IOException {
    byte[] bytes = Files.readAllBytes(file);
    ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).putInt(at, value);
    Files.write(file, bytes);
  }

  /** NaN in the padding: no byte of it may come in. */
  @ParameterizedTest
  @CsvSource({"F32, false", "BF16, true"})
  void opensToTheSameBits(DType dtype, boolean bf16) throws IOException {
    Path file = folder.resolve("anything");
    try (Checkpoint model = Checkpoint.open(model(dtype))) {
      LlmCFile.write(model, bf16, Float.NaN, file);
      try (Checkpoint opened = Checkpoint.open(file)) {
        Same.model(model, opened);
        assertEquals(List.of(file), opened.files());
        assertTrue(opened.vocabulary().isEmpty());
      }
    }
  }

  @Test
  void aFolderWithItsTokenizer() throws IOException {
    Path file = file();
    Path alone = Files.createDirectory(folder.resolve("alone"));
    Files.move(file, alone.resolve("model_00000100.bin"));
    LlmCFile.writeTokenizer(tokens("a", "b", "ab"), 2, alone.resolve("gpt2_tokenizer.bin"));
    try (Checkpoint opened = Checkpoint.open(alone)) {
      Vocabulary vocabulary = opened.vocabulary().orElseThrow();
      assertEquals(List.of("a b"), vocabulary.merges());
      assertEquals(Vocabulary.Kind.SPECIAL, vocabulary.tokens().getLast().kind());
      assertEquals(3, opened.config().eosTokenIds().getFirst());
    }
  }

  @Test
  void withoutItsTokenizerAsManyTokensAsGpt2HasAreItsOwn() throws IOException {
    Gpt2Config config =
        new Gpt2Config(1, 2, 6, 4, 50257, 24, Activation.GELU_NEW, 1e-5f, true, false, -1, -1);
    Path model =
        ModelFolder.random(
            folder.resolve("model"),
            config,
            new RandomCheckpoint.Layout(DType.F32, false, false, false));
    try (Checkpoint written = Checkpoint.open(model);
        Checkpoint opened =
            Checkpoint.open(LlmCFile.write(written, false, 47, folder.resolve("gpt2.bin")))) {
      assertEquals(Vocabulary.GPT2, opened.vocabulary().orElseThrow());
      assertEquals(50257, opened.config().vocabSize());
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 1, 2, 4, 6, -1})
  void otherVersions(int version) throws IOException {
    Path file = file();
    poke(file, 4, version);
    refused(file, file, "byte 4", "version " + version, "3 (F32) and 5 (BF16)");
  }

  @ParameterizedTest
  @CsvSource({
    "8, 0, n_positions is 0",
    "8, 12, calls for",
    "12, -5, vocab_size is -5",
    "12, 200, byte 28",
    "16, 3, calls for",
    "16, 2000000000, n_layer is 2000000000",
    "20, 3, not a multiple of n_head 3",
    "24, 1048575, calls for",
    "24, 2147483647, n_embd is 2147483647",
    "28, 36, byte 28",
    "28, 129, calls for",
    "28, 2147483647, calls for"
  })
  void headersThatDoNotFit(int at, int value, String words) throws IOException {
    Path file = file();
    poke(file, at, value);
    refused(file, file, words);
  }

  @Test
  void filesThatAreTooShortOrTooLong() throws IOException {
    Path file = file();
    byte[] sound = Files.readAllBytes(file);
    for (int size : new int[] {4, 7, 100, 1024, sound.length - 1}) {
      Files.write(file, Arrays.copyOf(sound, size));
      refused(file, file, size < 1024 ? "cut short" : "has " + size + " bytes");
    }
    Files.write(file, Arrays.copyOf(sound, sound.length + 1));
    refused(file, "has " + (sound.length + 1) + " bytes");
  }

  @Test
  void llmCsOtherFiles() throws IOException {
    Path file = file();
    poke(file, 0, 20240327);
    refused(file, file, "debug state", "20240326");
    LlmCFile.writeTokenizer(tokens("a"), 2, file);
    refused(file, file, "tokenizer", "20240326");
  }

  /** The merges that GPT-2 came with, from nothing but its tokens. */
  @ParameterizedTest
  @ValueSource(ints = {1, 2})
  void recoversTheMergesOfGpt2(int version) throws IOException {
    JsonObject json =
        JsonParser.parseString(Files.readString(GPT2.resolve("vocab.json"))).getAsJsonObject();
    byte[][] tokens = new byte[json.size()][];
    String[] spelled = new String[json.size()];
    json.entrySet()
        .forEach(
            entry -> {
              int id = entry.getValue().getAsInt();
              spelled[id] = entry.getKey();
              tokens[id] = bytes(entry.getKey());
            });
    Path file =
        LlmCFile.writeTokenizer(List.of(tokens), version, folder.resolve("gpt2_tokenizer.bin"));
    LlmCTokenizer tokenizer = LlmCTokenizer.beside(file).orElseThrow();
    assertEquals(50256, tokenizer.endOfText());
    Vocabulary vocabulary = tokenizer.vocabulary();
    assertEquals(
        List.of(spelled), vocabulary.tokens().stream().map(Vocabulary.Token::spelling).toList());
    List<String> merges =
        Files.readAllLines(GPT2.resolve("merges.txt")).stream()
            .filter(line -> !line.startsWith("#version") && !line.isEmpty())
            .toList();
    assertEquals(50_000, merges.size());
    assertEquals(merges, vocabulary.merges());
  }

  /** A spelling in GPT-2's alphabet as bytes, without the table that the reader uses. */
  private static byte[] bytes(String spelling) {
    if (spelling.startsWith("<|")) {
      return spelling.getBytes(UTF_8);
    }
    byte[] bytes = new byte[spelling.length()];
    for (int i = 0; i < bytes.length; i++) {
      int c = spelling.charAt(i);
      // U+0100 to U+0120 are bytes 00 to 20, then come 7F to A0, and AD
      bytes[i] =
          (byte) (c < 0x100 ? c : c <= 0x120 ? c - 0x100 : c <= 0x142 ? c - 0x121 + 0x7F : 0xAD);
    }
    return bytes;
  }

  @Test
  void tokenizersThatAreNoBpe() throws IOException {
    Path model = file();
    Path file = folder.resolve("gpt2_tokenizer.bin");
    LlmCFile.writeTokenizer(tokens("a", "b", "abb"), 2, file);
    refused(model, file, "token 2 is made of 3");
    LlmCFile.writeTokenizer(tokens("a", "b", "ab", "ab"), 2, file);
    refused(model, file, "token 3 is made of 1");
    LlmCFile.writeTokenizer(tokens("a", "b", "a"), 2, file);
    refused(model, file, "tokens 0 and 2", "same byte");
    LlmCFile.writeTokenizer(tokens("a", "ac"), 2, file);
    refused(model, file, "token 1", "byte 63");
    LlmCFile.writeTokenizer(tokens("a", ""), 2, file);
    refused(model, file, "token 1 is empty");
  }

  /**
   * Tokens of 255 bytes, every one sound: looking at the pairs of all takes billions of steps in a
   * file of a few megabytes.
   */
  @Test
  void tokenizersThatWouldTakeLong() throws IOException {
    byte[] chain = new byte[254];
    List<byte[]> tokens = new ArrayList<>();
    for (int b = 0; b < 256; b++) {
      tokens.add(new byte[] {(byte) b});
      chain[b % 254] = (byte) (b % 254);
    }
    for (int length = 2; length <= 254; length++) {
      tokens.add(Arrays.copyOf(chain, length));
    }
    for (int length : new int[] {254, 253}) {
      for (int b = 0; b < 256; b++) {
        byte[] after = Arrays.copyOf(chain, length + 1);
        after[length] = (byte) b;
        byte[] before = new byte[length + 1];
        before[0] = (byte) b;
        System.arraycopy(chain, 0, before, 1, length);
        if (length == 254 || b != 253) { // that one is in the chain
          tokens.add(after);
        }
        tokens.add(before);
      }
    }
    tokens.add("<|endoftext|>".getBytes(UTF_8));
    Path model = file();
    Path file = LlmCFile.writeTokenizer(tokens, 2, folder.resolve("gpt2_tokenizer.bin"));
    refused(model, file, "too long to find the merges again");
    LlmCFile.writeTokenizer(tokens.subList(0, 700), 2, file);
    try (Checkpoint opened = Checkpoint.open(model)) {
      assertEquals(700 - 257, opened.vocabulary().orElseThrow().merges().size());
    }
  }

  @Test
  void damagedTokenizers() throws IOException {
    Path model = file();
    Path file = LlmCFile.writeTokenizer(tokens("a", "b"), 2, folder.resolve("gpt2_tokenizer.bin"));
    byte[] sound = Files.readAllBytes(file);
    Files.write(file, Arrays.copyOf(sound, sound.length - 1));
    refused(model, file, "cut short", "byte 1029");
    Files.write(file, Arrays.copyOf(sound, sound.length + 1));
    refused(model, file, "goes on", "byte " + sound.length);
    Files.write(file, Arrays.copyOf(sound, 1000));
    refused(model, file, "cut short");
    Files.write(file, sound);
    for (int[] change :
        new int[][] {{0, 1, 20240328}, {4, 3, 4}, {8, 1_000_000_000, 8}, {8, -1, 8}, {12, 3, 12}}) {
      poke(file, change[0], change[1]);
      refused(model, file, change[2]);
      Files.write(file, sound);
    }
  }

  /** Their bytes, and the end of text. */
  private static List<byte[]> tokens(String... texts) {
    List<byte[]> tokens = new ArrayList<>();
    for (String text : texts) {
      tokens.add(text.getBytes(UTF_8));
    }
    tokens.add("<|endoftext|>".getBytes(UTF_8));
    return tokens;
  }
}
