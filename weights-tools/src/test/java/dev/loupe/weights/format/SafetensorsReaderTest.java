package dev.loupe.weights.format;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.weights.ModelFolder;
import dev.loupe.weights.Refusal;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class SafetensorsReaderTest {
  @TempDir Path folder;

  private void read(Path file) throws CheckpointException {
    try (Arena arena = Arena.ofConfined()) {
      var _ = SafetensorsReader.entries(InputFile.map(file, arena));
    }
  }

  /** Headers in single quotes, to be legible. */
  private void refused(String header, int dataBytes, Object... words) throws IOException {
    Path file = ModelFolder.raw(folder.resolve("m.safetensors"), quoted(header), dataBytes);
    Refusal.of(() -> read(file), words);
    Refusal.of(() -> read(file), file);
  }

  private static String quoted(String header) {
    return header.replace('\'', '"');
  }

  private static String tensor(String name, String dtype, String shape, String offsets) {
    return "'%s':{'dtype':'%s','shape':%s,'data_offsets':%s}"
        .formatted(name, dtype, shape, offsets);
  }

  @Test
  void readsWhatTheFormatAllows() throws IOException {
    String header =
        quoted(
            "{"
                + tensor("late", "F16", "[2,2]", "[4,12]")
                + ",'__metadata__':{'format':'pt','a':'b'},"
                + tensor("early", "F32", "[]", "[0,4]")
                + ","
                + tensor("none", "F32", "[0,7]", "[12,12]")
                + ","
                + tensor("later", "F8_NEW", "[3]", "[12,15]")
                + ","
                + tensor("mask", "BOOL", "[1,1,2,1]", "[15,17]")
                + "}  \n ");
    Path file = ModelFolder.raw(folder.resolve("m.safetensors"), header, 17);
    try (Arena arena = Arena.ofConfined()) {
      List<CheckpointReader.Entry> entries = SafetensorsReader.entries(InputFile.map(file, arena));
      assertEquals(
          List.of("late", "early", "none", "later", "mask"),
          entries.stream().map(CheckpointReader.Entry::name).toList());
      assertEquals(8, ModelFolder.stored(entries.getFirst()).byteSize());
      assertEquals(List.of(), entries.get(1).shape());
      assertEquals("F8_NEW", entries.get(3).dtype());
    }
  }

  @Test
  void refusesFilesThatAreTooShort() throws IOException {
    Path file = folder.resolve("m.safetensors");
    Refusal.of(() -> read(file), file, "does not exist");
    Files.write(file, new byte[0]);
    Refusal.of(() -> read(file), file, "is empty");
    Files.write(file, new byte[7]);
    Refusal.of(() -> read(file), file, "7 bytes", "too few");
    Files.write(file, new byte[8]);
    Refusal.of(() -> read(file), file, "no safetensors header");
    Refusal.of(() -> read(folder), folder, "not a regular file");
  }

  @ParameterizedTest
  @CsvSource({
    "9, announces a header of 9 bytes but has 16",
    "100000000, announces a header of 100000000 bytes but has 16",
    "100000001, more than the 100000000",
    "-1, announces a header of 18446744073709551615 bytes",
    "0, has no safetensors header",
    "8, has no safetensors header"
  })
  void refusesHeaderLengths(long length, String words) throws IOException {
    byte[] bytes = ByteBuffer.allocate(16).order(ByteOrder.LITTLE_ENDIAN).putLong(length).array();
    Path file = Files.write(folder.resolve("m.safetensors"), bytes);
    Refusal.of(() -> read(file), file, words);
  }

  @Test
  void refusesOtherKindsOfFiles() throws IOException {
    Path file = folder.resolve("m.safetensors");
    Files.writeString(
        file, "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 5\n");
    Refusal.of(() -> read(file), file, "Git LFS pointer", "git lfs pull");
    Files.writeString(file, "<!DOCTYPE html><html>404</html>");
    Refusal.of(() -> read(file), file, "damaged or in another format");
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "{",
        "{]",
        "{'a'}",
        "{'a':}",
        "{a:1}",
        "{'a':{'dtype':'F32','shape':[1],'data_offsets':[0,4]},}",
        "{'a':{'dtype':'F32','shape':[1,],'data_offsets':[0,4]}}",
        "{'a':{'dtype':'F32','shape':[1],'data_offsets':[0,4]}} x",
        "{'a':{'dtype':'F32','shape':[1],'data_offsets':[0,4]}}{}",
        "{'a':{'dtype':'F32','shape':[01],'data_offsets':[0,4]}}",
        "{'a':{'dtype':'F32','shape':[1],'data_offsets':[0,4]}/**/}",
        "{'a\n':{'dtype':'F32','shape':[1],'data_offsets':[0,4]}}",
        "{'a\\x':{'dtype':'F32','shape':[1],'data_offsets':[0,4]}}",
        "{'a':TRUE}"
      })
  void refusesWhatIsNotJson(String header) throws IOException {
    refused(header, 4, "header", "JSON");
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "{'a':1}",
        "{'a':null}",
        "{'a':[]}",
        "{'a':{}}",
        "{'a':{'dtype':'F32','shape':[1]}}",
        "{'a':{'dtype':'F32','data_offsets':[0,4]}}",
        "{'a':{'shape':[1],'data_offsets':[0,4]}}",
        "{'a':{'dtype':7,'shape':[1],'data_offsets':[0,4]}}",
        "{'a':{'dtype':'F32','shape':1,'data_offsets':[0,4]}}",
        "{'a':{'dtype':'F32','shape':['1'],'data_offsets':[0,4]}}",
        "{'a':{'dtype':'F32','shape':[[1]],'data_offsets':[0,4]}}",
        "{'a':{'dtype':'F32','shape':[1],'data_offsets':[0]}}",
        "{'a':{'dtype':'F32','shape':[1],'data_offsets':[0,2,4]}}",
        "{'a':{'dtype':'F32','shape':[1],'data_offsets':[0,4],'shape':[1]}}"
      })
  void refusesRowsOfAnotherForm(String header) throws IOException {
    refused(header, 4, ": a");
  }

  @ParameterizedTest
  @ValueSource(strings = {"-4", "-0", "4.0", "4.5", "4e0", "1e400", "9223372036854775808"})
  void refusesNumbersThatAreNotNatural(String number) throws IOException {
    refused(
        "{" + tensor("a", "F32", "[1]", "[0," + number + "]") + "}",
        4,
        "a's data_offsets",
        number,
        "whole number");
    refused("{" + tensor("a", "F32", "[" + number + "]", "[0,4]") + "}", 4, "a's shape", number);
  }

  @Test
  void refusesOffsetsThatDoNotTileTheData() throws IOException {
    String a = tensor("a", "F32", "[1]", "[0,4]");
    refused("{" + tensor("a", "F32", "[1]", "[4,0]") + "}", 4, "reversed", "[4, 0]");
    refused("{" + tensor("a", "F32", "[2]", "[0,8]") + "}", 4, "cut short", "byte 8 of 4");
    refused("{" + a + "}", 5, "last 1 bytes belong to no tensor");
    refused("{}", 1, "last 1 bytes");
    refused("{" + tensor("a", "F32", "[1]", "[4,8]") + "}", 8, "bytes 0 to 4", "no tensor");
    refused("{" + a + "," + tensor("b", "F32", "[1]", "[8,12]") + "}", 12, "bytes 4 to 8", "b");
    refused("{" + a + "," + tensor("b", "F32", "[1]", "[0,4]") + "}", 4, "inside the tensor", "b");
    refused("{" + tensor("b", "F32", "[1]", "[3,7]") + "," + a + "}", 7, "starts at byte 3", "b");
    refused(
        "{" + tensor("a", "F32", "[4]", "[0,16]") + "," + tensor("z", "F32", "[0]", "[8,8]") + "}",
        16,
        "z starts at byte 8");
  }

  @Test
  void refusesSizesThatDoNotFitTheShape() throws IOException {
    refused("{" + tensor("a", "F32", "[2]", "[0,4]") + "}", 4, "F32 [2]", "takes 8 bytes", "has 4");
    refused("{" + tensor("a", "F64", "[]", "[0,4]") + "}", 4, "takes 8 bytes");
    refused("{" + tensor("a", "U8", "[1]", "[0,4]") + "}", 4, "takes 1 bytes");
    refused("{" + tensor("a", "F32", "[0]", "[0,4]") + "}", 4, "takes 0 bytes");
    String huge = "[4294967296,4294967296,4294967296]";
    refused("{" + tensor("a", "F32", huge, "[0,4]") + "}", 4, "more than any file holds");
    // 2^64 elements wrap around to nothing
    String wraps = "[4294967296,4294967296]";
    refused("{" + tensor("a", "U8", wraps, "[0,0]") + "}", 0, "more than any file holds");
    refused(
        "{" + tensor("a", "F32", "[" + "1,".repeat(16) + "1]", "[0,4]") + "}",
        4,
        "a's shape has more than 16");
  }

  @Test
  void refusesNamesThatComeTwice() throws IOException {
    String a = tensor("a", "F32", "[1]", "[0,4]");
    refused("{" + a + "," + tensor("\\u0061", "F32", "[1]", "[4,8]") + "}", 8, "lists a twice");
    refused("{'__metadata__':{},'__metadata__':{}}", 0, "lists __metadata__ twice");
  }

  @Test
  void refusesMetadataThatAreNotStrings() throws IOException {
    refused("{'__metadata__':[]}", 0, "__metadata__ is not an object");
    refused("{'__metadata__':{'n':1}}", 0, "__metadata__", "n, which is not a string");
    refused("{'__metadata__':{'n':{}}}", 0, "n, which is not a string");
  }

  @Test
  void refusesBytesThatAreNotUtf8() throws IOException {
    byte[] header = "{\"__metadata__\":{\"x\":\"\u00e9\"}}".getBytes(StandardCharsets.ISO_8859_1);
    Path file = ModelFolder.raw(folder.resolve("m.safetensors"), header, 0);
    Refusal.of(() -> read(file), file, "UTF-8");
  }

  @Test
  void namesInMessagesAreShortAndHarmless() throws IOException {
    String name = "\\u001b[31m\\u202e" + "x".repeat(100_000);
    refused("{" + tensor(name, "F32", "[2]", "[0,4]") + "}", 4, ": ?[31m?xxx");
  }

  @Test
  void hostileJsonExhaustsNothing() throws IOException {
    int n = 20_000_000;
    refused("{'a':" + "[".repeat(n), 0, "a is not an object");
    refused("{'a':{'x':" + "[".repeat(n), 0, "nested deeper than 32");
    refused("{'a':{'x':" + "{'b':".repeat(n / 5), 0, "nested deeper than 32");
    refused("{'a':{'dtype':'F32','shape':[" + "1".repeat(n), 0, "header");
    refused("{'" + "\\\\".repeat(n / 2) + "':1}", 0, "a string of more than 4194304 bytes");
    refused("{'a" + "\\'".repeat(n / 2) + "':1}", 0, "a string of more than 4194304 bytes");
    refused("{'a':{'dtype':'F32','shape':[" + "1,".repeat(n / 2), 0, "more than 16");
    refused("{" + " ".repeat(n) + "}", 1, "last 1 bytes");
  }

  @Test
  void refusesTensorsByTheMillion() throws IOException {
    StringBuilder header =
        new StringBuilder("{'0':{'dtype':'F32','shape':[0],'data_offsets':[0,0]}");
    for (int i = 1; i <= 100_000; i++) {
      header.append(",'").append(i).append("':{'dtype':'F32','shape':[0],'data_offsets':[0,0]}");
    }
    refused(header + "}", 0, "more than 100000 tensors");
  }
}
