package dev.loupe.weights.format;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.weights.ModelFolder;
import dev.loupe.weights.Refusal;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.tensor.DType;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class SafetensorsWriterTest {
  private static final SafetensorsWriter.Entry A =
      new SafetensorsWriter.Entry("a", DType.F16, List.of(3L, 1L));
  private static final SafetensorsWriter.Entry B =
      new SafetensorsWriter.Entry("b", DType.F64, List.of());

  @TempDir Path folder;
  private Path file = Path.of("");

  @BeforeEach
  void nameTheFile() {
    file = folder.resolve("m.safetensors");
  }

  private static MemorySegment bytes(int... values) {
    byte[] bytes = new byte[values.length];
    for (int i = 0; i < values.length; i++) {
      bytes[i] = (byte) values[i];
    }
    return MemorySegment.ofArray(bytes);
  }

  private void assertNothingIsLeft() throws IOException {
    try (var files = Files.list(folder)) {
      assertEquals(List.of(), files.toList());
    }
  }

  @Test
  void writesPiecesInOrder() throws IOException {
    SafetensorsWriter.Entry none = new SafetensorsWriter.Entry("none", DType.F32, List.of(0L));
    try (SafetensorsWriter out = SafetensorsWriter.create(file, List.of(none, A, none("n"), B))) {
      out.write("a", bytes(1));
      out.write("a", bytes());
      out.write("a", bytes(2, 3, 4, 5, 6));
      out.write("n", bytes());
      out.write("b", bytes(1, 2, 3, 4));
      out.write("b", bytes(5, 6, 7, 8));
      assertEquals(14, out.dataBytes());
      assertFalse(Files.exists(file));
      out.commit();
    }
    try (Arena arena = Arena.ofConfined()) {
      List<CheckpointReader.Entry> entries = SafetensorsReader.entries(InputFile.map(file, arena));
      assertEquals(
          List.of("none", "a", "n", "b"),
          entries.stream().map(CheckpointReader.Entry::name).toList());
      assertEquals(List.of(3L, 1L), entries.get(1).shape());
      assertEquals(-1, ModelFolder.stored(entries.get(1)).mismatch(bytes(1, 2, 3, 4, 5, 6)));
      assertEquals("F64", entries.get(3).dtype());
      assertEquals(-1, ModelFolder.stored(entries.get(3)).mismatch(bytes(1, 2, 3, 4, 5, 6, 7, 8)));
    }
  }

  private static SafetensorsWriter.Entry none(String name) {
    return new SafetensorsWriter.Entry(name, DType.F32, List.of(2L, 0L));
  }

  @ParameterizedTest
  @ValueSource(
      strings = {"a", "ab", "abc", "abcd", "abcde", "\u00e9", "\u732b\"\\\n", "\ud83d\ude00"})
  void alignsTheDataWhateverTheNames(String name) throws IOException {
    SafetensorsWriter.Entry entry = new SafetensorsWriter.Entry(name, DType.F32, List.of(1L));
    try (SafetensorsWriter out = SafetensorsWriter.create(file, List.of(entry))) {
      out.write(name, bytes(1, 2, 3, 4));
      out.commit();
    }
    byte[] all = Files.readAllBytes(file);
    int header = (int) ByteBuffer.wrap(all).order(ByteOrder.LITTLE_ENDIAN).getLong();
    assertEquals(0, header % 8);
    assertEquals(8 + header + 4, all.length);
    String text = new String(all, 8, header, StandardCharsets.UTF_8);
    assertTrue(text.startsWith("{\"__metadata__\":{\"format\":\"pt\"}"), text);
    try (Arena arena = Arena.ofConfined()) {
      assertEquals(name, SafetensorsReader.entries(InputFile.map(file, arena)).getFirst().name());
    }
  }

  @Test
  void refusesBytesOutOfTurn() throws IOException {
    try (SafetensorsWriter out = SafetensorsWriter.create(file, List.of(A, B))) {
      assertSays(() -> out.write("b", bytes(1)), "b is written out of turn, a is next");
      out.write("a", bytes(1, 2));
      assertSays(() -> out.write("b", bytes(1)), "out of turn");
      assertSays(() -> out.write("a", bytes(1, 2, 3, 4, 5)), "a has 4 bytes left, given 5");
      assertSays(out::commit, "a has 2 of its 6 bytes");
      out.write("a", bytes(3, 4, 5, 6));
      assertSays(() -> out.write("a", bytes(1)), "out of turn, b is next");
      out.write("b", bytes(1, 2, 3, 4, 5, 6, 7));
      assertSays(out::commit, "b has 7 of its 8 bytes");
      out.write("b", bytes(8));
      assertSays(() -> out.write("b", bytes(1)), "nothing is next");
    }
    assertNothingIsLeft();
  }

  private static void assertSays(org.junit.jupiter.api.function.Executable action, String words) {
    IllegalStateException e = assertThrows(IllegalStateException.class, action);
    assertTrue(String.valueOf(e.getMessage()).contains(words), e.getMessage());
  }

  @Test
  void refusesAPlanThatIsNoFile() throws IOException {
    assertThrows(
        IllegalArgumentException.class, () -> SafetensorsWriter.create(file, List.of(A, A)));
    assertThrows(
        IllegalArgumentException.class,
        () -> new SafetensorsWriter.Entry("__metadata__", DType.F32, List.of()));
    assertThrows(
        IllegalArgumentException.class,
        () -> new SafetensorsWriter.Entry("x", DType.F32, List.of(-1L)));
    SafetensorsWriter.Entry huge =
        new SafetensorsWriter.Entry("x", DType.F32, List.of(1L << 30, 1L << 26));
    Refusal.of(() -> SafetensorsWriter.create(file, List.of(huge)), file, "room for");
    assertNothingIsLeft();
  }

  @Test
  void writesMoreThanOnePieceOfNativeMemory() throws IOException {
    long n = (1L << 24) + 5;
    SafetensorsWriter.Entry entry = new SafetensorsWriter.Entry("a", DType.F16, List.of(n));
    try (Arena arena = Arena.ofShared();
        SafetensorsWriter out = SafetensorsWriter.create(file, List.of(entry))) {
      MemorySegment data = arena.allocate(2 * n);
      data.set(ValueLayout.JAVA_BYTE, 2 * n - 1, (byte) 77);
      data.set(ValueLayout.JAVA_BYTE, 1 << 24, (byte) 78);
      out.write("a", data);
      out.commit();
      MemorySegment stored =
          ModelFolder.stored(SafetensorsReader.entries(InputFile.map(file, arena)).getFirst());
      assertEquals(-1, stored.mismatch(data));
    }
  }
}
