package dev.loupe.ops.cpu;

import static dev.loupe.Close.assertClose;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.Checkout;
import dev.loupe.ops.Attention;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Pass;
import dev.loupe.ops.Precision;
import dev.loupe.ops.RebuiltRows;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Random;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Attention alone: worked examples, and every awkward shape against the plain formula. */
class AttentionTest {
  enum Twin {
    SCALAR(ScalarLoops::new),
    VECTOR(VectorLoops::new);

    final Supplier<InnerLoops> loops;

    Twin(Supplier<InnerLoops> loops) {
      this.loops = loops;
    }
  }

  private static final int TOP = 5;

  /** Output, log-sum-exp, probabilities, scores and statistics of one layer. */
  private static final class Result {
    final float[] y; // [R, C]
    final float[] lse; // [R, H]
    final float[][][] p; // [H, R, keys]
    final float[][][] s;
    final float[][][] statistics; // [H, R, 2 + 2 TOP]

    Result(float[] y, float[] lse, float[][][] p, float[][][] s, float[][][] statistics) {
      this.y = y;
      this.lse = lse;
      this.p = p;
      this.s = s;
      this.statistics = statistics;
    }
  }

  private static Result attend(
      Twin twin, int heads, int d, float[] qkv, int sequences, float scale, Mask mask) {
    try (CpuOps ops = new CpuOps(2, Precision.F32, twin.loops.get());
        TensorArena arena = ops.arena()) {
      int rows = qkv.length / (3 * heads * d);
      int t = rows / sequences;
      KvCache kv = new KvCache(arena, 1, heads, d, sequences, t);
      poison(kv.keys(0));
      poison(kv.values(0));
      int[] sequence = new int[rows];
      Arrays.setAll(sequence, r -> r / t);
      Batch batch = Batch.step(sequence);
      for (int r = 0; r < rows; r++) {
        batch.set(r, 0, r % t);
      }
      Tensor in = arena.allocate(rows, 3 * heads * d);
      in.data().copyFrom(MemorySegment.ofArray(qkv));
      Tensor y = arena.allocate(rows, heads * d);
      Tensor lse = arena.allocate(rows, heads);
      Pass pass = ops.begin(batch, kv, mask);
      Attention attention = pass.attention(0, scale, in, lse);
      ops.appendKv(attention);
      attention.attend(y);
      int[] all = new int[heads];
      Arrays.setAll(all, h -> h);
      Tensor map = arena.allocate(heads * rows, t);
      RebuiltRows weights = attention.probabilities(all, 0, rows, map);
      float[][][] p = read(attention, weights, heads, rows);
      float[][][] s = read(attention, attention.scores(all, 0, rows, map), heads, rows);
      Tensor spread = arena.allocate(heads * rows, AttentionPlan.statisticsOf(TOP));
      RebuiltRows spreads = attention.statistics(all, 0, rows, TOP, spread);
      float[][][] statistics = new float[heads][rows][spread.cols()];
      for (int i = 0; i < heads * rows; i++) {
        spreads.read(i, statistics[i / rows][i % rows], spread.cols());
      }
      alone(arena, attention, all, statistics);
      map.data().fill((byte) 0x7f); // NaN
      spread.data().fill((byte) 0x7f);
      List<RebuiltRows> both = attention.probabilitiesAndStatistics(all, 0, rows, map, TOP, spread);
      assertArrayEquals(p, read(attention, both.getFirst(), heads, rows));
      for (int i = 0; i < heads * rows; i++) {
        float[] row = new float[spread.cols()];
        both.getLast().read(i, row, row.length);
        assertArrayEquals(statistics[i / rows][i % rows], row);
      }
      pass.close();
      assertThrows(
          IllegalStateException.class, () -> attention.statistics(all, 0, rows, TOP, spread));
      return new Result(flat(ops, y), flat(ops, lse), p, s, statistics);
    }
  }

  /** Statistics are the same bits whichever rows and heads come together. */
  private static void alone(TensorArena arena, Attention in, int[] heads, float[][][] expected) {
    int rows = in.batch().rows();
    Tensor one = arena.allocate(1, AttentionPlan.statisticsOf(TOP));
    float[] row = new float[one.cols()];
    for (int h = heads.length - 1; h >= 0; h -= 2) {
      for (int r = 0; r < rows; r += 1 + rows / 9) {
        in.statistics(new int[] {heads[h]}, r, 1, TOP, one).read(0, row, row.length);
        assertArrayEquals(expected[h][r], row);
      }
    }
  }

  /** Cells beyond the last key are read by whole tiles and must not leak into any result. */
  private static void poison(Tensor cells) {
    for (long i = 0; i < cells.byteSize(); i += 4) {
      cells.data().set(ScalarLoops.F32, i, Float.NaN);
    }
  }

  private static float[][][] read(Attention in, RebuiltRows map, int heads, int rows) {
    float[][][] out = new float[heads][rows][];
    for (int h = 0; h < heads; h++) {
      for (int r = 0; r < rows; r++) {
        out[h][r] = new float[in.keys(r)];
        map.read(h * rows + r, out[h][r], out[h][r].length);
      }
    }
    return out;
  }

  private static float[] flat(CpuOps ops, Tensor t) {
    float[] all = new float[t.rows() * t.cols()];
    float[] row = new float[t.cols()];
    for (int r = 0; r < t.rows(); r++) {
      ops.read(t, r, row, row.length);
      System.arraycopy(row, 0, all, r * row.length, row.length);
    }
    return all;
  }

  @ParameterizedTest
  @EnumSource(Twin.class)
  void workedExamples(Twin twin) throws Exception {
    JsonObject file =
        JsonParser.parseString(
                Files.readString(
                    Checkout.TEST_DATA.resolve("golden").resolve("worked-examples.json")))
            .getAsJsonObject();
    JsonObject cat = file.getAsJsonObject("cat_sat_mat");
    checkExample(twin, cat, matrix(cat.get("Q")), matrix(cat.get("K")), matrix(cat.get("V")));
    JsonObject eight = file.getAsJsonObject("eight_tokens");
    double[][] x = matrix(eight.get("X"));
    checkExample(
        twin,
        eight,
        product(x, matrix(eight.get("WQ"))),
        product(x, matrix(eight.get("WK"))),
        product(x, matrix(eight.get("WV"))));

    // Scores as queries and the unit vectors as keys: q . k[j] is the score itself.
    JsonObject masked = file.getAsJsonObject("masked_scores");
    double[][] unit = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}};
    float[] qkv = sideBySide(matrix(masked.get("scores")), unit, unit);
    Result actual = attend(twin, 1, 4, qkv, 1, 1, Mask.CAUSAL);
    double[][] expected = matrix(masked.get("causal_softmax"));
    for (int r = 0; r < expected.length; r++) {
      assertClose("masked scores " + r, Arrays.copyOf(expected[r], r + 1), actual.p[0][r], 1e-6);
    }
  }

  private static void checkExample(
      Twin twin, JsonObject example, double[][] q, double[][] k, double[][] v) {
    int d = q[0].length;
    float[] qkv = sideBySide(q, k, v);
    for (Mask mask : Mask.values()) {
      JsonObject expected = example.getAsJsonObject(mask == Mask.FULL ? "full" : "causal");
      Result actual = attend(twin, 1, d, qkv, 1, (float) (1 / Math.sqrt(d)), mask);
      double[][] weights = matrix(expected.get("weights"));
      for (int r = 0; r < weights.length; r++) {
        float[] row = Arrays.copyOf(actual.p[0][r], weights[r].length); // 0 above the diagonal
        assertClose(mask + " weights " + r, weights[r], row, 1e-6);
      }
      double[] output =
          Arrays.stream(matrix(expected.get("output"))).flatMapToDouble(Arrays::stream).toArray();
      assertClose(mask + " output", output, actual.y, 1e-6);
    }
  }

  private static float[] sideBySide(double[][] q, double[][] k, double[][] v) {
    int d = q[0].length;
    float[] qkv = new float[q.length * 3 * d];
    for (int r = 0; r < q.length; r++) {
      for (int i = 0; i < d; i++) {
        qkv[3 * r * d + i] = (float) q[r][i];
        qkv[(3 * r + 1) * d + i] = (float) k[r][i];
        qkv[(3 * r + 2) * d + i] = (float) v[r][i];
      }
    }
    return qkv;
  }

  private static double[][] product(double[][] a, double[][] b) {
    double[][] c = new double[a.length][b[0].length];
    for (int i = 0; i < a.length; i++) {
      for (int k = 0; k < b.length; k++) {
        for (int j = 0; j < b[k].length; j++) {
          c[i][j] += a[i][k] * b[k][j];
        }
      }
    }
    return c;
  }

  private static double[][] matrix(JsonElement json) {
    JsonArray rows = json.getAsJsonArray();
    double[][] m = new double[rows.size()][];
    for (int r = 0; r < m.length; r++) {
      JsonArray row = rows.get(r).getAsJsonArray();
      m[r] = new double[row.size()];
      for (int c = 0; c < m[r].length; c++) {
        m[r][c] = row.get(c).getAsDouble();
      }
    }
    return m;
  }

  @ParameterizedTest
  @EnumSource(Twin.class)
  void everyShapeAgainstTheFormula(Twin twin) {
    Random random = new Random(7);
    for (int t : new int[] {1, 2, 15, 16, 17, 31, 33, 64, 65, 200}) {
      for (int d : List.of(1, 3, 8, 25, 64)) {
        for (Mask mask : Mask.values()) {
          for (int sequences : new int[] {1, 2}) {
            check(twin, random, 2, d, t, sequences, 1, mask);
          }
        }
      }
    }
  }

  /** Scores of +-80 leave exp no room outside the softmax's shift by the maximum. */
  @ParameterizedTest
  @EnumSource(Twin.class)
  void extremeScores(Twin twin) {
    check(twin, new Random(8), 1, 16, 130, 1, 20, Mask.CAUSAL);
  }

  private static void check(
      Twin twin, Random random, int heads, int d, int t, int sequences, float size, Mask mask) {
    int width = heads * d;
    int rows = t * sequences;
    float[] qkv = new float[rows * 3 * width];
    for (int i = 0; i < qkv.length; i++) {
      qkv[i] = (float) random.nextGaussian();
    }
    float scale = (float) (size / Math.sqrt(d));
    Result actual = attend(twin, heads, d, qkv, sequences, scale, mask);
    // A score's f32 rounding is relative to its size, and enters exp as it is.
    double tolerance = 1e-6 * Math.max(1, 4 * size);
    for (int h = 0; h < heads; h++) {
      for (int r = 0; r < rows; r++) {
        int base = r / t * t;
        int keys = mask == Mask.CAUSAL ? r % t + 1 : t;
        double[] s = new double[keys];
        double max = Double.NEGATIVE_INFINITY;
        for (int j = 0; j < keys; j++) {
          for (int i = 0; i < d; i++) {
            s[j] +=
                (double) qkv[r * 3 * width + h * d + i]
                    * qkv[(base + j) * 3 * width + width + h * d + i];
          }
          s[j] *= scale;
          max = Math.max(max, s[j]);
        }
        double sum = 0;
        for (int j = 0; j < keys; j++) {
          sum += Math.exp(s[j] - max);
        }
        double lse = max + Math.log(sum);
        assertEquals(lse, actual.lse[r * heads + h], 1e-6 * (1 + Math.abs(lse)), "log-sum-exp");
        double total = 0;
        double[] y = new double[d];
        assertEquals(keys, actual.p[h][r].length);
        for (int j = 0; j < keys; j++) {
          double p = Math.exp(s[j] - lse);
          assertEquals(s[j], actual.s[h][r][j], 1e-6 * (4 + Math.abs(s[j])), "score");
          assertEquals(p, actual.p[h][r][j], tolerance, "probability");
          total += actual.p[h][r][j];
          for (int i = 0; i < d; i++) {
            y[i] += p * qkv[(base + j) * 3 * width + 2 * width + h * d + i];
          }
        }
        assertEquals(1, total, 1e-5, "sum of a row");
        checkStatistics(s, lse, r % t, actual.p[h][r], actual.statistics[h][r], tolerance);
        for (int i = 0; i < d; i++) {
          assertEquals(y[i], actual.y[r * width + h * d + i], 5 * tolerance, "output");
        }
      }
    }
  }

  /** Entropy and distance by their formulas; the heaviest keys are those of the row itself. */
  private static void checkStatistics(
      double[] scores, double lse, int position, float[] p, float[] actual, double tolerance) {
    double entropy = 0;
    double distance = 0;
    for (int j = 0; j < scores.length; j++) {
      double weight = Math.exp(scores[j] - lse);
      entropy -= weight * (scores[j] - lse);
      distance += weight * Math.abs(position - j);
    }
    assertEquals(entropy, actual[0], 5 * tolerance, "entropy");
    assertTrue(Float.floatToRawIntBits(actual[0]) >= 0 || actual[0] < 0, "no -0");
    assertEquals(distance, actual[1], 2 * tolerance * scores.length, "distance");
    Integer[] keys = new Integer[p.length];
    Arrays.setAll(keys, j -> j);
    Arrays.sort(keys, Comparator.comparingDouble(j -> -p[j])); // stable: the lower key first
    for (int i = 0; i < TOP; i++) {
      assertEquals(i < p.length ? keys[i] : -1, actual[2 + i], "top key");
      assertEquals(i < p.length ? p[keys[i]] : 0, actual[2 + TOP + i], "its weight");
    }
  }

  /** The heaviest keys are far from the first ones, and many weigh the same. */
  @ParameterizedTest
  @EnumSource(Twin.class)
  void heaviestKeysAnywhere(Twin twin) {
    int t = 200;
    float[] qkv = new float[3 * t];
    for (int r = 0; r < t; r++) {
      qkv[3 * r] = 1;
      qkv[3 * r + 1] = r == 70 || r == 130 || r == 199 ? 3 : r == 64 || r == 5 ? 2 : 0;
    }
    Result actual = attend(twin, 1, 1, qkv, 1, 1, Mask.CAUSAL);
    float[] last = actual.statistics[0][t - 1];
    assertArrayEquals(new float[] {70, 130, 199, 5, 64}, Arrays.copyOfRange(last, 2, 2 + TOP));
    float[] before = actual.statistics[0][69];
    assertArrayEquals(new float[] {5, 64, 0, 1, 2}, Arrays.copyOfRange(before, 2, 2 + TOP));
    double[] s = new double[t];
    Arrays.setAll(s, r -> qkv[3 * r + 1]);
    checkStatistics(s, actual.lse[t - 1], t - 1, actual.p[0][t - 1], last, 1e-6);
  }

  /** Keys that weigh nothing at all: 0 ln 0 is 0. */
  @ParameterizedTest
  @EnumSource(Twin.class)
  void keysWithoutWeight(Twin twin) {
    float[] qkv = {1, 500, 1, 1, 0, 1, 1, -500, 1};
    Result actual = attend(twin, 1, 1, qkv, 1, 1, Mask.CAUSAL);
    assertArrayEquals(new float[] {0, 2, 0, 1, 2, -1, -1, 1, 0, 0, 0, 0}, actual.statistics[0][2]);
    assertEquals(0, Float.floatToRawIntBits(actual.statistics[0][0][0]), "0, not -0");
    float[] last = new float[3 * 65]; // no key of the first tile weighs anything
    for (int r = 0; r < 65; r++) {
      last[3 * r] = 1;
    }
    last[3 * 64 + 1] = 500;
    assertArrayEquals(
        new float[] {0, 0, 64, 0, 1, 2, 3, 1, 0, 0, 0, 0},
        attend(twin, 1, 1, last, 1, 1, Mask.CAUSAL).statistics[0][64]);
  }

  @Test
  void twinsAgreeBitForBit() {
    Random random = new Random(9);
    float[] qkv = new float[77 * 3 * 3 * 25];
    for (int i = 0; i < qkv.length; i++) {
      qkv[i] = (float) random.nextGaussian();
    }
    Result scalar = attend(Twin.SCALAR, 3, 25, qkv, 1, 0.2f, Mask.CAUSAL);
    Result vector = attend(Twin.VECTOR, 3, 25, qkv, 1, 0.2f, Mask.CAUSAL);
    assertArrayEquals(scalar.y, vector.y);
    assertArrayEquals(scalar.lse, vector.lse);
    for (int head = 0; head < 3; head++) {
      for (int row = 0; row < 77; row++) {
        assertArrayEquals(scalar.statistics[head][row], vector.statistics[head][row]);
      }
    }
  }
}
