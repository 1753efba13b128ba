package dev.loupe.cuda.driver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.math.BigDecimal;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

class ElementTest {
  @Test
  void namesAndSizes() {
    assertEquals("bf16", Element.BF16.suffix());
    assertEquals(2, Element.BF16.bytes());
    assertEquals(4, Element.I32.bytes());
    assertEquals(1, Element.I8.bytes());
  }

  /** The ordinals are known to pointwise.cu. */
  @Test
  void orderIsPartOfAnInterface() {
    assertEquals("[F32, F16, BF16]", List.of(Element.values()).subList(0, 3).toString());
  }

  @Test
  void everyBf16ComesBack() {
    for (int bits = 0; bits < 1 << 16; bits++) {
      float value = Element.fromBf16((short) bits);
      short back = Element.toBf16(value);
      if (Float.isNaN(value)) {
        assertTrue(Float.isNaN(Element.fromBf16(back)), Integer.toHexString(bits));
      } else {
        assertEquals((short) bits, back, Integer.toHexString(bits));
      }
    }
  }

  /** Against the definition: the nearer neighbour, and of two equally near the even one. */
  @Test
  void roundsToNearestEven() {
    Random random = new Random(7);
    for (int i = 0; i < 20_000; i++) {
      int high = random.nextInt(0x7f7f); // positive and finite, and so is the next
      int low = i % 3 == 0 ? 0x8000 : random.nextInt(1 << 16);
      float value = Float.intBitsToFloat(high << 16 | low);
      BigDecimal exact = new BigDecimal(value);
      BigDecimal below = new BigDecimal(Element.fromBf16((short) high)).subtract(exact).abs();
      BigDecimal above = new BigDecimal(Element.fromBf16((short) (high + 1))).subtract(exact);
      int side = below.compareTo(above);
      int expected = side < 0 ? high : side > 0 ? high + 1 : high + (high & 1);
      assertEquals((short) expected, Element.toBf16(value), Float.toHexString(value));
      assertEquals((short) (expected | 0x8000), Element.toBf16(-value), "-" + value);
    }
  }

  @Test
  void endsOfTheRange() {
    assertEquals(0x7f80, Element.toBf16(Float.MAX_VALUE), "rounds up to infinity");
    assertEquals(0x7f80, Element.toBf16(Float.POSITIVE_INFINITY));
    assertEquals((short) 0x8000, Element.toBf16(-0f));
    assertEquals(0, Element.toBf16(Float.MIN_VALUE));
    // a NaN whose upper half alone would be an infinity
    assertTrue(Float.isNaN(Element.fromBf16(Element.toBf16(Float.intBitsToFloat(0x7f800001)))));
    assertTrue(Float.isNaN(Element.fromBf16(Element.toBf16(Float.intBitsToFloat(0xffffffff)))));
  }
}
