package dev.loupe.cuda.selftest;

import static dev.loupe.cuda.selftest.SelfTestInputs.F32;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.kernels.AttentionMapKernels;
import dev.loupe.cuda.kernels.CacheShape;
import java.util.Arrays;
import java.util.stream.IntStream;

/**
 * Rows, each with the keys that it sees, and the exact answer. Of the cache, positions that no row
 * sees hold NaN; so do the rows of q that see none.
 */
final class AttentionAnswer {
  private final SelfTestInputs c;
  final CacheShape shape;
  final int[][] places;
  final float scale;
  final DeviceBuffer qkv;
  final DeviceBuffer k;
  final DeviceBuffer v;
  final double[][] scores; // [row and head][key]
  final double[][] p;
  final double[] lse;
  private final float[] values;

  AttentionAnswer(
      SelfTestInputs c,
      CacheShape shape,
      int[][] places,
      float scale,
      Element activations,
      Element cache) {
    this(c, shape, places, scale, activations, cache, false);
  }

  /**
   * @param exact whether the products q.k shall be exact in f32, so that none depends on the order
   *     of a sum
   */
  AttentionAnswer(
      SelfTestInputs c,
      CacheShape shape,
      int[][] places,
      float scale,
      Element activations,
      Element cache,
      boolean exact) {
    this.c = c;
    this.shape = shape;
    this.places = places;
    this.scale = scale;
    float[] q = c.floats(exact ? Element.F16 : activations, places.length * 3 * shape.width());
    float[] keys = c.floats(exact ? Element.F16 : cache, (int) shape.elements());
    if (exact) {
      repeat(keys);
    }
    values = c.floats(cache, keys.length);
    int[] seen = new int[AttentionProblem.SEQUENCES];
    for (int row = 0; row < places.length; row++) {
      int[] place = places[row];
      if (place[1] > 0) {
        seen[place[0]] = Math.max(seen[place[0]], place[1]);
      } else {
        Arrays.fill(q, row * 3 * shape.width(), (row + 1) * 3 * shape.width(), Float.NaN);
      }
    }
    for (int s = 0; s < AttentionProblem.SEQUENCES * AttentionProblem.HEADS; s++) {
      int from = (s * shape.capacity() + seen[s / AttentionProblem.HEADS]) * shape.headSize();
      int to = (s + 1) * shape.capacity() * shape.headSize();
      Arrays.fill(keys, from, to, Float.NaN);
      Arrays.fill(values, from, to, Float.NaN);
    }
    qkv = c.put(activations, q);
    k = c.put(cache, keys);
    v = c.put(cache, values);
    scores = new double[places.length * AttentionProblem.HEADS][];
    p = new double[scores.length][];
    lse = new double[scores.length];
    for (int i = 0; i < scores.length; i++) {
      answer(i, q, keys);
    }
  }

  /** Makes some keys of each head equal: the first and the third, and so on. */
  private void repeat(float[] keys) {
    int row = shape.headSize();
    for (int at = 0; at + 3 * row <= keys.length; at += 4 * row) {
      System.arraycopy(keys, at, keys, at + 2 * row, row);
    }
  }

  private void answer(int i, float[] q, float[] keys) {
    int d = shape.headSize();
    int row = i / AttentionProblem.HEADS;
    int n = places[row][1];
    int at = row * 3 * shape.width() + i % AttentionProblem.HEADS * d;
    scores[i] = new double[n];
    for (int key = 0; key < n; key++) {
      double dot = 0;
      for (int j = 0; j < d; j++) {
        dot += (double) q[at + j] * keys[at(i, key) + j];
      }
      scores[i][key] = scale * dot;
    }
    double most = Arrays.stream(scores[i]).max().orElse(Double.NaN);
    lse[i] = most + Math.log(Arrays.stream(scores[i]).map(s -> Math.exp(s - most)).sum());
    p[i] = Arrays.stream(scores[i]).map(s -> Math.exp(s - lse[i])).toArray();
  }

  private int at(int i, int key) {
    int sequence = places[i / AttentionProblem.HEADS][0];
    return ((sequence * AttentionProblem.HEADS + i % AttentionProblem.HEADS) * shape.capacity()
            + key)
        * shape.headSize();
  }

  /** [R, C]; NaN where a row sees no key. */
  double y(int column) {
    int i = column / shape.headSize();
    double y = p[i].length == 0 ? Double.NaN : 0;
    for (int key = 0; key < p[i].length; key++) {
      y += p[i][key] * values[at(i, key) + column % shape.headSize()];
    }
    return y;
  }

  AttentionMapKernels.Source source(AttentionProblem problem) {
    int[] segments =
        problem.segments().stream()
            .flatMapToInt(
                s -> IntStream.of(s.firstRow(), s.rows(), s.sequence(), s.firstPosition()))
            .toArray();
    float[] sums = new float[lse.length];
    for (int i = 0; i < sums.length; i++) {
      sums[i] = (float) lse[i];
    }
    return new AttentionMapKernels.Source(
        qkv,
        k,
        c.put(F32, sums),
        c.put(segments),
        problem.segments().size(),
        problem.causal(),
        scale);
  }
}
