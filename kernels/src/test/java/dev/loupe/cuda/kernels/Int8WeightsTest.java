package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Random;
import org.junit.jupiter.api.Test;

class Int8WeightsTest {
  @Test
  void everyWeightIsWithinHalfAScale() {
    int in = 150; // groups of 64, 64 and 22
    int outputs = 7;
    float[] w = new float[in * outputs];
    Random random = new Random(3);
    for (int i = 0; i < w.length; i++) {
      w[i] = Math.scalb(random.nextFloat(-1, 1), i % in / 64 * 9 - 9);
    }
    Int8Weights q = Int8Weights.quantise(w, in, outputs);
    for (int o = 0; o < outputs; o++) {
      for (int k = 0; k < in; k++) {
        float max = 0;
        for (int j = k / 64 * 64; j < Math.min(in, k / 64 * 64 + 64); j++) {
          max = Math.max(max, Math.abs(w[o * in + j]));
        }
        double scale = q.scale(o, k);
        assertEquals(max / 127, scale);
        double error = Math.abs(w[o * in + k] - q.value(o, k) * scale);
        assertTrue(error <= scale * 0.50001, "[%d, %d]: %s of %s".formatted(o, k, error, scale));
      }
    }
  }

  @Test
  void roundsToNearestAndKeepsTheEnds() {
    Int8Weights q = Int8Weights.quantise(new float[] {127, -127, 0.49f, 0.51f, -1.5f, 2.5f}, 6, 1);
    assertEquals(1, q.scale(0, 0));
    byte[] expected = {127, -127, 0, 1, -2, 2};
    for (int k = 0; k < expected.length; k++) {
      assertEquals(expected[k], q.value(0, k));
    }
  }

  @Test
  void zeroAndTinyGroupsDivideByNothing() {
    Int8Weights zero = Int8Weights.quantise(new float[64], 64, 1);
    assertEquals(0, zero.scale(0, 5));
    assertEquals(0, zero.value(0, 5));
    Int8Weights least = Int8Weights.quantise(new float[] {Float.MIN_VALUE}, 1, 1);
    assertEquals(0, least.scale(0, 0));
    // max / 127 rounds down to the least f32: the quotient would be 190
    Int8Weights tiny = Int8Weights.quantise(new float[] {190 * Float.MIN_VALUE}, 1, 1);
    assertEquals(127, tiny.value(0, 0));
  }

  @Test
  void refusesWhatHasNoScale() {
    Exception e =
        assertThrows(
            IllegalArgumentException.class,
            () -> Int8Weights.quantise(new float[] {1, 2, 3, Float.NaN}, 2, 2));
    assertEquals("int8 weights: weight [1, 1] is NaN", e.getMessage());
    e =
        assertThrows(
            IllegalArgumentException.class, () -> Int8Weights.quantise(new float[5], 2, 2));
    assertEquals("int8 weights: 5 values for [2, 2]", e.getMessage());
  }
}
