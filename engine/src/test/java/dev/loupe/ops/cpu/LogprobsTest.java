package dev.loupe.ops.cpu;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.ops.Precision;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Log-probabilities of tokens, against float64; the same bits on loops of every kind. */
class LogprobsTest {
  private static BitSet all(int n) {
    BitSet all = new BitSet();
    all.set(0, n);
    return all;
  }

  private static double[] logprobs(InnerLoops loops, float[][] rows, int... ids) {
    try (CpuOps ops = new CpuOps(2, Precision.F32, loops);
        TensorArena arena = ops.arena()) {
      Tensor x = arena.allocate(rows.length, rows[0].length);
      for (int r = 0; r < rows.length; r++) {
        MemorySegment.copy(rows[r], 0, x.data(), ScalarLoops.F32, x.offset(r, 0), rows[r].length);
      }
      double[] out = new double[rows.length];
      ops.logprobs(x, ids, all(rows[0].length), out);
      for (int r = 0; r < rows.length; r++) {
        float[] after = new float[rows[r].length];
        ops.read(x, r, after, after.length);
        assertArrayEquals(rows[r], after, "logits are left as they were");
      }
      return out;
    }
  }

  /** Those of scalar loops, which are those of vectors. */
  private static double[] logprobs(float[][] rows, int... ids) {
    double[] scalar = logprobs(new ScalarLoops(), rows, ids);
    for (InnerLoops vector : LoopsFixture.vectors()) {
      assertArrayEquals(scalar, logprobs(vector, rows, ids), vector.toString());
    }
    return scalar;
  }

  private static double expected(float[] row, int id) {
    double max = Double.NEGATIVE_INFINITY;
    for (float x : row) {
      max = Math.max(max, x);
    }
    double sum = 0;
    for (float x : row) {
      sum += Math.exp(x - max);
    }
    return row[id] - max - Math.log(sum);
  }

  private static void check(float[] row) {
    for (int id : new int[] {0, row.length / 2, row.length - 1}) {
      double logprob = expected(row, id);
      assertEquals(logprob, logprobs(new float[][] {row}, id)[0], 1e-6 * (1 - logprob) / 2);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 63, 64, 65, 1024, 50_257})
  void againstFloat64(int vocabulary) {
    Random random = new Random(vocabulary);
    float[] row = new float[vocabulary];
    for (float size : new float[] {0, 1, 10, 1e4f}) {
      for (int i = 0; i < row.length; i++) {
        row[i] = size * (float) random.nextGaussian();
      }
      check(row);
    }
    Arrays.fill(row, 1e4f);
    check(row);
    Arrays.fill(row, -1e4f);
    check(row);
    row[vocabulary / 2] = 1e4f;
    check(row);
    Arrays.fill(row, Float.NEGATIVE_INFINITY);
    row[vocabulary / 2] = 3;
    assertEquals(0, logprobs(new float[][] {row}, vocabulary / 2)[0]);
  }

  @Test
  void whatIsNotFiniteStaysInItsRow() {
    float[][] rows = new float[5][200];
    rows[1][150] = Float.NaN;
    rows[2][70] = Float.POSITIVE_INFINITY;
    rows[4][199] = Float.POSITIVE_INFINITY;
    double[] logprobs = logprobs(rows, 0, 0, 70, 199, 0);
    assertEquals(-Math.log(200), logprobs[0], 1e-6);
    assertTrue(Double.isNaN(logprobs[1]));
    assertTrue(Double.isNaN(logprobs[2]));
    assertEquals(logprobs[0], logprobs[3]);
    assertTrue(!Double.isFinite(logprobs[4]));
  }

  @Test
  void rowsAreOneByOneAsTogether() {
    Random random = new Random(4);
    float[][] rows = new float[9][1000];
    int[] ids = new int[rows.length];
    for (int r = 0; r < rows.length; r++) {
      for (int i = 0; i < 1000; i++) {
        rows[r][i] = 3 * (float) random.nextGaussian();
      }
      ids[r] = r % 3 == 2 ? -1 - r / 3 : random.nextInt(1000);
    }
    double[] together = logprobs(rows, ids);
    for (int r = 0; r < rows.length; r++) {
      double alone = logprobs(new float[][] {rows[r]}, ids[r])[0];
      assertEquals(alone, together[r]);
      assertEquals(ids[r] < 0, Double.isNaN(alone));
    }
  }

  @Test
  void rowsThatPadTheVocabularyDoNotCount() {
    Random random = new Random(5);
    BitSet said = all(300);
    said.clear(0, 2);
    said.clear(64);
    said.clear(270, 300);
    float[][] rows = new float[3][300];
    float[][] spoiled = new float[3][300];
    for (int r = 0; r < rows.length; r++) {
      for (int i = 0; i < 300; i++) {
        rows[r][i] = said.get(i) ? 3 * (float) random.nextGaussian() : Float.NEGATIVE_INFINITY;
        spoiled[r][i] = said.get(i) ? rows[r][i] : i % 2 == 0 ? 50 : Float.NaN;
      }
    }
    int[] ids = {2, 269, 65};
    double[] out = new double[3];
    try (CpuOps ops = new CpuOps(2);
        TensorArena arena = ops.arena()) {
      Tensor x = arena.allocate(3, 300);
      for (int r = 0; r < rows.length; r++) {
        MemorySegment.copy(spoiled[r], 0, x.data(), ScalarLoops.F32, x.offset(r, 0), 300);
      }
      ops.logprobs(x, ids, said, out);
    }
    for (int r = 0; r < rows.length; r++) {
      assertEquals(expected(rows[r], ids[r]), out[r], 1e-5);
    }
  }

  @Test
  void wrongIdsAndShapes() {
    try (CpuOps ops = new CpuOps(1);
        TensorArena arena = ops.arena()) {
      Tensor x = arena.allocate(2, 10);
      assertThrows(
          IllegalArgumentException.class,
          () -> ops.logprobs(x, new int[] {0, 10}, all(10), new double[2]),
          "outside");
      assertThrows(
          IllegalArgumentException.class,
          () -> ops.logprobs(x, new int[] {0, Integer.MAX_VALUE}, all(10), new double[2]));
      assertThrows(
          IllegalArgumentException.class,
          () -> ops.logprobs(x, new int[1], all(10), new double[2]));
      assertThrows(
          IllegalArgumentException.class,
          () -> ops.logprobs(x, new int[2], all(10), new double[1]));
    }
  }
}
