package dev.loupe.ops.cpu;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.weights.config.Activation;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** The twins give the same bits, on vectors of every width, and those bits are right. */
class InnerLoopsTest extends LoopsFixture {
  private static final int[] SIZES = {1, 2, 3, 4, 7, 8, 15, 16, 17, 25, 31, 32, 33, 64, 65, 200};

  @ParameterizedTest
  @MethodSource("vectors")
  void sumsAndNorms(InnerLoops vector) {
    try (Arena arena = Arena.ofConfined()) {
      for (int n : SIZES) {
        MemorySegment x = segment(arena, floats(n));
        MemorySegment w = segment(arena, floats(n));
        MemorySegment b = segment(arena, floats(n));
        assertEquals(scalar.sum(x, 0, n), vector.sum(x, 0, n));
        assertEquals(scalar.sumOfSquares(x, 0, n, 0.3f), vector.sumOfSquares(x, 0, n, 0.3f));
        MemorySegment one = segment(arena, new float[n]);
        MemorySegment two = segment(arena, new float[n]);
        scalar.normalise(x, 0, n, 0.1f, 1.7f, w, b, one, 0);
        vector.normalise(x, 0, n, 0.1f, 1.7f, w, b, two, 0);
        assertArrayEquals(array(one), array(two));
      }
    }
  }

  /** Tiles differ in size between the twins, so each is held to the sum's definition. */
  @ParameterizedTest
  @MethodSource("vectors")
  void tiles(InnerLoops vector) {
    try (Arena arena = Arena.ofConfined()) {
      for (InnerLoops loops : all(vector)) {
        for (int inner : SIZES) {
          for (int rows = 1; rows <= loops.tileRows(); rows++) {
            tile(arena, loops, inner, rows);
          }
        }
      }
    }
  }

  private void tile(Arena arena, InnerLoops loops, int inner, int rows) {
    int columns = loops.tileColumns();
    int half = columns / 2;
    int stride = columns + 3; // of w and of the tile, in elements
    float[] x = floats(rows * inner);
    float[] w = floats(2 * inner * stride); // the right half lies behind all of the left one
    float[] start = floats(columns);
    float[] tile = new float[rows * stride + 1];
    float[] expected = tile.clone();
    for (int m = 0; m < rows; m++) {
      for (int j = 0; j < columns; j++) {
        float sum = start[j];
        for (int k = 0; k < inner; k++) {
          int at = j < half ? k * stride + j + 1 : (inner + k) * stride + j - half;
          sum = Math.fma(x[m * inner + k], w[at], sum);
        }
        expected[m * stride + j + 1] = sum;
      }
    }
    MemorySegment to = segment(arena, tile);
    loops.multiplyTile(
        segment(arena, x),
        0,
        4L * inner,
        rows,
        inner,
        segment(arena, w),
        4,
        4L * inner * stride,
        4L * stride,
        segment(arena, start),
        to,
        4,
        4L * stride);
    assertArrayEquals(expected, array(to));
  }

  @ParameterizedTest
  @MethodSource("vectors")
  void softmax(InnerLoops vector) {
    try (Arena arena = Arena.ofConfined()) {
      float[] scores = floats(InnerLoops.KEYS);
      float[] sums = floats(InnerLoops.LANES);
      for (int n : new int[] {0, 1, 2, 15, 16, 17, 33, 63, 64}) {
        for (float before : new float[] {Float.NEGATIVE_INFINITY, 0, 10}) {
          List<float[]> results = new ArrayList<>();
          for (InnerLoops loops : all(vector)) {
            MemorySegment x = segment(arena, scores);
            MemorySegment lanes = segment(arena, sums);
            float max = loops.scaleScores(x, 0, n, 0.7f, before);
            float expected = before;
            for (int j = 0; j < n; j++) {
              expected = Math.max(expected, 0.7f * scores[j]);
            }
            assertEquals(expected, max);
            loops.exponentials(x, 0, Math.max(max, -1), 0.4f, lanes, 0);
            results.add(array(x));
            results.add(array(lanes));
          }
          assertArrayEquals(results.get(0), results.get(2));
          assertArrayEquals(results.get(1), results.get(3));
          float sum = 0;
          float all = 0;
          for (int j = 0; j < InnerLoops.KEYS; j++) {
            assertTrue(j < n == results.get(0)[j] > 0, "key " + j + " of " + n);
            sum += results.get(0)[j];
          }
          for (int lane = 0; lane < InnerLoops.LANES; lane++) {
            all += results.get(1)[lane] - 0.4f * sums[lane];
          }
          assertEquals(sum, all, 1e-4f * (1 + sum));
        }
      }
    }
  }

  @ParameterizedTest
  @MethodSource("vectors")
  void spreads(InnerLoops vector) {
    try (Arena arena = Arena.ofConfined()) {
      float[] scores = floats(InnerLoops.KEYS);
      float[] sums = floats(2 * InnerLoops.LANES);
      for (int n : new int[] {1, 2, 15, 16, 17, 33, 63, 64}) {
        for (int distance : new int[] {0, 5, 63, 1000, -70}) {
          List<float[]> results = new ArrayList<>();
          for (InnerLoops loops : all(vector)) {
            MemorySegment x = segment(arena, scores);
            MemorySegment lanes = segment(arena, sums);
            float _ = loops.scaleScores(x, 0, n, 3, 0);
            float most = loops.spread(x, 0, 2.5f, distance, lanes, 0);
            results.add(array(x));
            results.add(array(lanes));
            results.add(new float[] {most});
          }
          for (int i = 0; i < 3; i++) {
            assertArrayEquals(results.get(i), results.get(i + 3));
          }
          double[] expected = new double[2 * InnerLoops.LANES];
          float most = 0;
          for (int j = 0; j < n; j++) {
            double log = 3 * scores[j] - 2.5;
            assertEquals(Math.exp(log), results.get(0)[j], 1e-6 * Math.exp(log));
            expected[j % 16] += Math.exp(log) * log;
            expected[16 + j % 16] += Math.exp(log) * Math.abs(distance - j);
            most = Math.max(most, results.get(0)[j]);
          }
          for (int i = 0; i < expected.length; i++) {
            assertEquals(
                sums[i] + expected[i],
                results.get(1)[i],
                2e-6 * (1 + Math.abs(expected[i])),
                "lane " + i);
          }
          assertEquals(most, results.get(2)[0]);
        }
      }
    }
  }

  @ParameterizedTest
  @MethodSource("vectors")
  void scaledSums(InnerLoops vector) {
    try (Arena arena = Arena.ofConfined()) {
      for (int n : SIZES) {
        float[] from = floats(n);
        float[] to = floats(n);
        float[] sum = new float[n];
        float[] product = new float[n];
        for (int i = 0; i < n; i++) {
          sum[i] = Math.fma(to[i], 0.3f, from[i]);
          product[i] = from[i] * 0.3f;
        }
        for (InnerLoops loops : all(vector)) {
          MemorySegment result = segment(arena, to);
          loops.scaleAdd(result, 0, 0.3f, segment(arena, from), 0, n);
          assertArrayEquals(sum, array(result));
          loops.scale(segment(arena, from), 0, n, 0.3f, result, 0);
          assertArrayEquals(product, array(result));
        }
      }
      for (InnerLoops loops : all(vector)) {
        int columns = loops.tileColumns();
        float[] from = floats(2 * columns);
        float[] scales = floats(columns);
        float[] to = floats(2 * columns + 5);
        float[] expected = to.clone();
        for (int i = 0; i < 2 * columns; i++) {
          int at = i / columns * (columns + 5) + i % columns;
          expected[at] = Math.fma(from[i], scales[i % columns], expected[at]);
        }
        MemorySegment result = segment(arena, to);
        MemorySegment factors = segment(arena, scales);
        loops.addScaled(segment(arena, from), 0, 2, factors, 0, result, 0, 4L * (columns + 5));
        assertArrayEquals(expected, array(result));
      }
    }
  }

  @ParameterizedTest
  @MethodSource("vectors")
  void activations(InnerLoops vector) {
    try (Arena arena = Arena.ofConfined()) {
      for (Activation f : Activation.values()) {
        for (int n : SIZES) {
          float[] x = floats(n);
          for (int i = 0; i < n; i++) {
            x[i] *= i % 2 == 0 ? 40 : 0.4f;
          }
          MemorySegment one = segment(arena, x);
          MemorySegment two = segment(arena, x);
          scalar.activate(f, one, 0, n);
          vector.activate(f, two, 0, n);
          assertArrayEquals(array(one), array(two), f.toString());
        }
      }
    }
  }

  @Test
  void foldsInHalves() {
    float[] lanes = new float[18];
    Arrays.fill(lanes, 1);
    lanes[2] = 0x1p24f; // swallows a 1 added alone, not the 8 that its fold adds first
    assertEquals(0x1p24f + 14, InnerLoops.fold(lanes, 2), 1);
  }
}
