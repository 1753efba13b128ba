package dev.loupe.weights.tensor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

class DTypeTest {
  private static final ValueLayout.OfShort SHORT =
      ValueLayout.JAVA_SHORT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final ValueLayout.OfDouble DOUBLE =
      ValueLayout.JAVA_DOUBLE_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

  @ParameterizedTest
  @EnumSource(names = {"F16", "BF16"})
  void everyHalfSurvivesTheWayThroughFloat(DType dtype) {
    MemorySegment all = MemorySegment.ofArray(new byte[1 << 17]);
    for (int bits = 0; bits < 1 << 16; bits++) {
      all.set(SHORT, 2L * bits, (short) bits);
    }
    float[] floats = new float[1 << 16];
    dtype.decode(all, 0, floats, 0, floats.length);
    MemorySegment back = MemorySegment.ofArray(new byte[1 << 17]);
    dtype.encode(floats, 0, floats.length, back, 0);
    for (int bits = 0; bits < 1 << 16; bits++) {
      if (Float.isNaN(floats[bits])) {
        float[] again = new float[1];
        dtype.decode(back, 2L * bits, again, 0, 1);
        assertTrue(Float.isNaN(again[0]), Integer.toHexString(bits));
      } else {
        assertEquals((short) bits, back.get(SHORT, 2L * bits), Integer.toHexString(bits));
      }
    }
  }

  @ParameterizedTest
  @CsvSource({
    "3F800000, 3F80", // 1
    "3F808000, 3F80", // halfway: down to even
    "3F818000, 3F82", // halfway: up to even
    "3F808001, 3F81",
    "BF808001, BF81",
    "3F807FFF, 3F80",
    "7F7FFFFF, 7F80", // the largest float rounds to infinity
    "7F7F0000, 7F7F",
    "00000001, 0000",
    "80000000, 8000",
    "7F800001, 7FC0", // a NaN whose payload is in the lost half
    "FFFFFFFF, FFFF"
  })
  void bf16RoundsToNearestEven(String bits, String expected) {
    MemorySegment out = MemorySegment.ofArray(new byte[2]);
    float value = Float.intBitsToFloat(Integer.parseUnsignedInt(bits, 16));
    DType.BF16.encode(new float[] {value}, 0, 1, out, 0);
    assertEquals(expected, "%04X".formatted(out.get(SHORT, 0)));
  }

  @ParameterizedTest
  @CsvSource({
    "1.00048828125, 3C00", // 1 + 2^-11, halfway: down to even
    "1.00146484375, 3C02", // 1 + 3 x 2^-11, halfway: up to even
    "65504, 7BFF",
    "65520, 7C00",
    "2.9802322387695312e-8, 0000", // half the least subnormal: down to even
    "2.98023259e-8, 0001",
    "-0.0, 8000"
  })
  void f16RoundsToNearestEven(float value, String expected) {
    MemorySegment out = MemorySegment.ofArray(new byte[2]);
    DType.F16.encode(new float[] {value}, 0, 1, out, 0);
    assertEquals(expected, "%04X".formatted(out.get(SHORT, 0)));
  }

  @Test
  void doublesRoundToTheNearestFloat() {
    double[] doubles = {1 + 0x1p-24, 1 + 0x1.8p-23, 1e300, -0.0, Math.PI};
    MemorySegment in = MemorySegment.ofArray(new byte[8 * doubles.length]);
    for (int i = 0; i < doubles.length; i++) {
      in.set(DOUBLE, 8L * i, doubles[i]);
    }
    float[] out = new float[doubles.length];
    DType.F64.decode(in, 0, out, 0, out.length);
    assertEquals(1f, out[0]);
    assertEquals(1 + 0x1p-22f, out[1]);
    assertEquals(Float.POSITIVE_INFINITY, out[2]);
    assertEquals(Float.floatToRawIntBits(-0f), Float.floatToRawIntBits(out[3]));
    assertEquals((float) Math.PI, out[4]);
  }

  @ParameterizedTest
  @EnumSource
  void readsAndWritesWithoutAlignmentAndOnlyWhatWasAsked(DType dtype) {
    float[] from = {9, 0.5f, -2, 1024, 9};
    byte[] bytes = new byte[3 * dtype.bytes() + 2];
    MemorySegment segment = MemorySegment.ofArray(bytes);
    dtype.encode(from, 1, 3, segment, 1);
    assertEquals(0, bytes[0]);
    assertEquals(0, bytes[bytes.length - 1]);
    float[] to = {7, 7, 7, 7, 7};
    dtype.decode(segment, 1, to, 1, 3);
    org.junit.jupiter.api.Assertions.assertArrayEquals(new float[] {7, 0.5f, -2, 1024, 7}, to);
  }
}
