package dev.loupe.weights.io;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.google.gson.JsonParser;
import com.sun.management.ThreadMXBean;
import dev.loupe.weights.AdapterConfig;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.GgufBytes;
import dev.loupe.weights.GgufModel;
import dev.loupe.weights.Refusal;
import dev.loupe.weights.format.LlmCTokenizer;
import dev.loupe.weights.vocabulary.SentencePieceModel;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileTime;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** What comes in through the one door, and what is kept out. */
class InputFileTest {
  private static final ThreadMXBean THREAD =
      (ThreadMXBean) ManagementFactory.getThreadMXBean(); // Sun's counts bytes, too

  @TempDir Path folder;

  /** Neither way in opens the file. */
  private void refused(Path file, Object... words) {
    Refusal.of(() -> InputFile.read(file, 1000, "a config"), words);
    Refusal.of(
        () -> {
          try (Arena arena = Arena.ofConfined()) {
            InputFile.map(file, arena);
          }
        },
        words);
  }

  @Test
  void onlyRegularFilesComeIn() throws Exception {
    refused(folder, folder, "not a regular file", "a folder");
    refused(folder.resolve("none"), folder.resolve("none"), "does not exist");
    refused(folder.resolve("none/x"), folder.resolve("none/x"), "does not exist");
    Path pipe = folder.resolve("pipe");
    assumeTrue(Files.exists(Path.of("/usr/bin/mkfifo")), "no mkfifo here");
    assertEquals(0, new ProcessBuilder("/usr/bin/mkfifo", pipe.toString()).start().waitFor());
    refused(pipe, pipe, "a pipe or a device");
    Path link = Files.createSymbolicLink(folder.resolve("link"), Path.of("/dev/zero"));
    refused(link, link, "a pipe or a device");
  }

  @Test
  void whatIsNoContentIsSaid() throws IOException {
    refused(Files.write(folder.resolve("empty"), new byte[0]), "empty", "is empty");
    Path pointer = Files.writeString(folder.resolve("p"), "version https://git-lfs.github.com");
    refused(pointer, pointer, "Git LFS pointer");
    Path large = Files.write(folder.resolve("large"), new byte[1001]);
    Refusal.of(() -> InputFile.read(large, 1000, "a config"), large, "1001", "for a config");
    assertEquals(1001, InputFile.read(large, 1001, "a config").array().length);
    Path latin = Files.write(folder.resolve("latin"), new byte[] {'a', '\n', (byte) 0xE9, '\n'});
    Refusal.of(() -> InputFile.read(latin, 9, "x").text(), latin, "not UTF-8");
    Refusal.of(() -> InputFile.read(latin, 9, "x").lines(line -> {}), latin, "not UTF-8");
  }

  @Test
  void whoWritesToAFileInUseIsNoticed() throws IOException {
    Path path = Files.write(folder.resolve("w"), new byte[100]);
    try (Arena arena = Arena.ofConfined()) {
      InputFile file = InputFile.map(path, arena);
      file.checkUnchanged();
      FileTime time = Files.getLastModifiedTime(path);
      Files.setLastModifiedTime(path, FileTime.fromMillis(time.toMillis() + 1));
      Refusal.of(file::checkUnchanged, path, "changed by another program");
      Files.setLastModifiedTime(path, time);
      file.checkUnchanged();
      Files.write(path, new byte[99]);
      Files.setLastModifiedTime(path, time);
      Refusal.of(file::checkUnchanged, path, "changed by another program");
    }
  }

  @Test
  void aFileThatTakesTheNameDoesNoHarm() throws IOException {
    Path path = Files.write(folder.resolve("w"), new byte[100]);
    try (Arena arena = Arena.ofConfined()) {
      InputFile file = InputFile.map(path, arena);
      Path other = Files.write(folder.resolve("other"), new byte[7]);
      Files.move(other, path, StandardCopyOption.ATOMIC_MOVE);
      file.checkUnchanged();
      Files.delete(path);
      file.checkUnchanged();
    }
  }

  private static <T> T json(String text, StrictJson.Body<T> body) throws CheckpointException {
    return StrictJson.parse("it", MemorySegment.ofArray(text.getBytes(UTF_8)), body);
  }

  @Test
  void treesAreWhatWasWritten() throws IOException {
    String text =
        "{\"a\": [1, -7, 1099511627776, 0.5, 1e30, 99999999999999999999], \"b\": {\"\\u00e9\": null},"
            + " \"c\": true, \"d\": \"x\\n\", \"e\": [NaN, -Infinity, [], {}]}";
    assertEquals(
        JsonParser.parseString(text.replace("NaN", "'NaN'").replace("-Infinity", "'-Infinity'"))
            .toString()
            .replace("1e30", "1E+30"),
        json(text, in -> StrictJson.tree(in, "it", 100)).toString());
    assertEquals(
        "{\"a\":2}", json("{\"a\":1,\"a\":2}", in -> StrictJson.tree(in, "it", 9)).toString());
  }

  @Test
  void treesAreBounded() {
    String values = "[0" + ",0".repeat(999) + "]";
    Refusal.of(() -> json(values, in -> StrictJson.tree(in, "it", 1000)), "more values");
    String deep = "[".repeat(5000) + "]".repeat(5000);
    Refusal.of(() -> json(deep, in -> StrictJson.tree(in, "it", 10_000)), "nested deeper");
    Refusal.of(
        () ->
            json(
                deep,
                in -> {
                  in.skipValue();
                  return 0;
                }),
        "nested deeper");
    Refusal.of(() -> json("[1e99999999999]", in -> StrictJson.tree(in, "it", 9)), "parsed");
  }

  /** Bytes that this thread allocates, all in all: what is held at once is less. */
  private static long allocated(Executable action) throws Throwable {
    long before = THREAD.getCurrentThreadAllocatedBytes();
    action.execute();
    return THREAD.getCurrentThreadAllocatedBytes() - before;
  }

  /** Twice the file, and some megabytes. */
  private static void assertFrugal(Path file, long bytes) throws IOException {
    long budget = 2 * Files.size(file) + (16 << 20);
    assertTrue(bytes < budget, () -> "%d bytes of %d for %s".formatted(bytes, budget, file));
  }

  @Test
  void whatAGgufHoldsBesidesTakesNoMemory() throws Throwable {
    int each = 1 << 19;
    GgufModel model = new GgufModel(0, 12, 20, 5, 7, false);
    for (String key : List.of("tokenizer.ggml.x", "gpt2.x", "x")) {
      for (int i = 0; i < 4; i++) {
        GgufBytes.Out array = model.file.pair(key + i, 9).number(4, 4).number(each, 8);
        for (int n = 0; n < each; n++) {
          array = array.number(n + 1000L, 4);
        }
      }
    }
    Path file = Files.write(folder.resolve("m.gguf"), model.file.bytes());
    assertFrugal(file, allocated(() -> Checkpoint.open(file).close()));
  }

  @Test
  void aGgufsNumbersFitWhatTheyAreOf() throws IOException {
    GgufModel model = new GgufModel(0, 12, 20, 5, 7, false);
    byte[] bytes = model.file.bytes();
    String key = "gpt2.block_count";
    int at = new String(bytes, java.nio.charset.StandardCharsets.ISO_8859_1).indexOf(key);
    byte[] longer = new byte[bytes.length + 4];
    int value = at + key.length();
    System.arraycopy(bytes, 0, longer, 0, value);
    ByteBuffer.wrap(longer)
        .order(ByteOrder.LITTLE_ENDIAN)
        .putInt(value, 10)
        .putLong(value + 4, 1L << 40);
    System.arraycopy(bytes, value + 8, longer, value + 12, bytes.length - value - 8);
    Path file = Files.write(folder.resolve("m.gguf"), longer);
    Refusal.of(() -> Checkpoint.open(file).close(), file, key, "1099511627776");
  }

  @Test
  void anArrayForANumberIsRefused() throws IOException {
    GgufModel model = new GgufModel(0, 12, 20, 5, 7, false);
    var _ =
        model.file.pair("tokenizer.ggml.eos_token_id", 9).number(4, 4).number(1, 8).number(3, 4);
    Path file = Files.write(folder.resolve("m.gguf"), model.file.bytes());
    Refusal.of(() -> Checkpoint.open(file).close(), file, "eos_token_id", "an array");
  }

  @Test
  void emptyTokensOfLlmCAreNotCounted() throws Throwable {
    int count = 6_000_000;
    ByteBuffer bytes = ByteBuffer.allocate(1024 + count).order(ByteOrder.LITTLE_ENDIAN);
    bytes.putInt(20240328).putInt(1).putInt(count);
    Path file = Files.write(folder.resolve("gpt2_tokenizer.bin"), bytes.array());
    assertFrugal(
        file,
        allocated(
            () ->
                Refusal.of(
                    () -> LlmCTokenizer.beside(folder.resolve("m.bin")), file, "6000000 tokens")));
  }

  @Test
  void piecesOfSentencePieceAreCounted() throws Throwable {
    byte[] piece = {0x0A, 3, 0x0A, 1, 'a'};
    ByteBuffer bytes = ByteBuffer.allocate(piece.length * ((1 << 20) + 1));
    while (bytes.hasRemaining()) {
      bytes.put(piece);
    }
    Path file = Files.write(folder.resolve("spiece.model"), bytes.array());
    Refusal.of(() -> SentencePieceModel.read(file), file, "more than 1048576 pieces");
  }

  @Test
  void settingsAreNotTrees() throws Throwable {
    List<String> many = new ArrayList<>();
    for (int i = 0; i < 1_100_000; i++) {
      many.add("0");
    }
    Path file = folder.resolve("adapter_config.json");
    Files.writeString(file, "{\"r\": [" + String.join(",", many) + "]}");
    Refusal.of(() -> AdapterConfig.read(file), file, "more values");
  }
}
