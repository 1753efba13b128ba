package dev.loupe.weights.ggml;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The format's bytes, by hand. */
class GgufWriterTest {
  @TempDir Path folder;

  private static byte[] hex(String text) {
    return HexFormat.of().parseHex(text.replace(" ", ""));
  }

  @Test
  void headerByHand() throws IOException {
    Path file = folder.resolve("a.gguf");
    GgufWriter.Metadata metadata =
        new GgufWriter.Metadata()
            .put("a", "é")
            .put("b", 258)
            .put("c", 1.5f)
            .put("d", true)
            .putStrings("e", List.of("x", ""))
            .putInts("f", List.of(-1));
    List<GgufWriter.Entry> entries =
        List.of(
            new GgufWriter.Entry("t", GgmlType.F16, List.of(2L, 3L)),
            new GgufWriter.Entry("u", GgmlType.F32, List.of(1L)));
    try (GgufWriter out = GgufWriter.create(file, metadata, entries)) {
      out.write("t", ByteBuffer.wrap(new byte[] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
      out.write("t", ByteBuffer.wrap(new byte[] {11, 12}));
      out.write("u", ByteBuffer.wrap(new byte[] {13, 14, 15, 16}));
      out.commit();
    }
    ByteArrayOutputStream expected = new ByteArrayOutputStream();
    expected.writeBytes("GGUF".getBytes(UTF_8));
    expected.writeBytes(hex("03000000 0200000000000000 0600000000000000"));
    // key, type, value
    expected.writeBytes(hex("0100000000000000 61 08000000 0200000000000000 c3a9"));
    expected.writeBytes(hex("0100000000000000 62 04000000 02010000"));
    expected.writeBytes(hex("0100000000000000 63 06000000 0000c03f"));
    expected.writeBytes(hex("0100000000000000 64 07000000 01"));
    expected.writeBytes(hex("0100000000000000 65 09000000 08000000 0200000000000000"));
    expected.writeBytes(hex("0100000000000000 78 0000000000000000"));
    expected.writeBytes(hex("0100000000000000 66 09000000 05000000 0100000000000000 ffffffff"));
    // name, dimensions, extents innermost first, type, offset
    expected.writeBytes(hex("0100000000000000 74 02000000 0300000000000000 0200000000000000"));
    expected.writeBytes(hex("01000000 0000000000000000"));
    expected.writeBytes(hex("0100000000000000 75 01000000 0100000000000000"));
    expected.writeBytes(hex("00000000 2000000000000000"));
    assertFalse(expected.size() % 32 == 0, "this test wants to see padding");
    expected.writeBytes(new byte[32 - expected.size() % 32]);
    expected.writeBytes(hex("0102030405060708090a0b0c"));
    expected.writeBytes(new byte[20]);
    expected.writeBytes(hex("0d0e0f10"));
    expected.writeBytes(new byte[28]);
    assertArrayEquals(expected.toByteArray(), Files.readAllBytes(file));
  }

  @Test
  void aBlockOfQ8ByHand() {
    float[] x = new float[32];
    x[0] = -254; // the largest: d = 254 / 127 = 2, f16 4000
    x[1] = 254;
    x[2] = 1; // 0.5 goes away from 0
    x[3] = -1;
    x[4] = 0.99f; // 0.495 goes to 0
    x[5] = 5; // 2.5 goes to 3
    x[31] = -100;
    ByteBuffer to = GgufWriter.buffer(34);
    assertEquals(-1, GgmlType.Q8_0.encode(x, 0, 32, to));
    byte[] expected = new byte[34];
    byte[] begin = hex("0040 81 7f 01 ff 00 03");
    System.arraycopy(begin, 0, expected, 0, begin.length);
    expected[33] = -50;
    assertEquals(ByteBuffer.wrap(expected), to.flip());

    ByteBuffer zeros = GgufWriter.buffer(34);
    assertEquals(-1, GgmlType.Q8_0.encode(new float[32], 0, 32, zeros));
    assertEquals(ByteBuffer.wrap(new byte[34]), zeros.flip());
  }

  @Test
  void whatATypeCannotHold() {
    float[] x = new float[64];
    Arrays.fill(x, 1);
    assertEquals(-1, GgmlType.F16.encode(x, 0, 64, GgufWriter.buffer(128)));
    x[40] = 65_536;
    assertEquals(40, GgmlType.F16.encode(x, 0, 64, GgufWriter.buffer(128)));
    assertEquals(-1, GgmlType.Q8_0.encode(x, 0, 64, GgufWriter.buffer(68)));
    x[41] = Float.NaN;
    assertEquals(41, GgmlType.Q8_0.encode(x, 0, 64, GgufWriter.buffer(68)));
    x[41] = -1e8f; // its scale is beyond f16
    assertEquals(41, GgmlType.Q8_0.encode(x, 0, 64, GgufWriter.buffer(68)));
    assertEquals(-1, GgmlType.F32.encode(x, 0, 64, GgufWriter.buffer(256)));
  }

  @Test
  void nothingIsLeftOfAnUnfinishedFile() throws IOException {
    Path file = folder.resolve("b.gguf");
    List<GgufWriter.Entry> entries = List.of(new GgufWriter.Entry("t", GgmlType.F32, List.of(2L)));
    try (GgufWriter out = GgufWriter.create(file, new GgufWriter.Metadata(), entries)) {
      assertThrows(IllegalStateException.class, () -> out.write("u", ByteBuffer.wrap(new byte[4])));
      assertThrows(IllegalStateException.class, () -> out.write("t", ByteBuffer.wrap(new byte[9])));
      out.write("t", ByteBuffer.wrap(new byte[4]));
      assertThrows(IllegalStateException.class, out::commit);
    }
    try (var left = Files.list(folder)) {
      assertEquals(List.of(), left.toList());
    }
    assertThrows(
        IllegalArgumentException.class,
        () -> new GgufWriter.Entry("t", GgmlType.Q8_0, List.of(32L, 33L)));
    List<GgufWriter.Entry> twice = List.of(entries.getFirst(), entries.getFirst());
    assertThrows(
        IllegalArgumentException.class,
        () -> GgufWriter.create(file, new GgufWriter.Metadata(), twice));
  }
}
