package dev.loupe.bench.kernel;

import dev.loupe.ops.Tensor;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;

/**
 * Attention as a textbook writes it down, in plain loops over plain arrays. Both ways read keys and
 * values row by row, so that they differ in nothing but the scores that are kept.
 */
final class TextbookAttention {
  private final float[] qkv; // [T, 3 H D]
  private final int tokens;
  private final int heads;
  private final int d;
  private final int width; // of a row of qkv
  private final int firstQuery; // the last token alone, or all
  private final float scale;
  private final Tensor out;

  private TextbookAttention(Problem problem, Tensor out) {
    Shape shape = problem.shape();
    qkv = problem.x();
    tokens = shape.size("T");
    heads = shape.size("H");
    d = shape.size("D");
    width = 3 * heads * d;
    firstQuery = shape.operation() == Operation.DECODE_ATTENTION ? tokens - 1 : 0;
    scale = problem.scale();
    this.out = out;
  }

  /** All scores of a head in memory, T x T, in three passes. */
  static Runnable naive(Problem problem, Tensor out) {
    TextbookAttention attention = new TextbookAttention(problem, out);
    float[][] scores = attention.scores();
    return () -> attention.inThreePasses(scores);
  }

  /** Online softmax (Milakov and Gimelshein, arXiv 1805.02867), a key at a time. */
  static Runnable online(Problem problem, Tensor out) {
    return new TextbookAttention(problem, out)::inOnePass;
  }

  /** The rows of {@link #naive}'s second pass. */
  static Runnable map(Problem problem, Tensor out) {
    TextbookAttention attention = new TextbookAttention(problem, out);
    float[] row = new float[attention.tokens];
    return () -> attention.maps(row);
  }

  private float[][] scores() {
    float[][] scores = new float[tokens - firstQuery][];
    Arrays.setAll(scores, i -> new float[tokens]);
    return scores;
  }

  private void inThreePasses(float[][] scores) {
    float[] sum = new float[d];
    for (int head = 0; head < heads; head++) {
      for (int query = firstQuery; query < tokens; query++) {
        score(head, query, scores[query - firstQuery]);
      }
      for (int query = firstQuery; query < tokens; query++) {
        softmax(scores[query - firstQuery], query + 1);
      }
      for (int query = firstQuery; query < tokens; query++) {
        weigh(head, query, scores[query - firstQuery], sum);
        write(head, query, sum);
      }
    }
  }

  private void score(int head, int query, float[] scores) {
    for (int key = 0; key <= query; key++) {
      scores[key] = scale * dot(query * width + head * d, key * width + (heads + head) * d);
    }
  }

  private float dot(int q, int k) {
    float sum = 0;
    for (int i = 0; i < d; i++) {
      sum += qkv[q + i] * qkv[k + i];
    }
    return sum;
  }

  private static void softmax(float[] row, int n) {
    float max = Float.NEGATIVE_INFINITY;
    for (int i = 0; i < n; i++) {
      max = Math.max(max, row[i]);
    }
    float sum = 0;
    for (int i = 0; i < n; i++) {
      row[i] = (float) Math.exp(row[i] - max);
      sum += row[i];
    }
    for (int i = 0; i < n; i++) {
      row[i] /= sum;
    }
  }

  private void weigh(int head, int query, float[] weights, float[] sum) {
    Arrays.fill(sum, 0);
    for (int key = 0; key <= query; key++) {
      add(weights[key], key * width + (2 * heads + head) * d, sum);
    }
  }

  private void add(float weight, int v, float[] sum) {
    for (int i = 0; i < d; i++) {
      sum[i] += weight * qkv[v + i];
    }
  }

  private void inOnePass() {
    float[] sum = new float[d];
    for (int head = 0; head < heads; head++) {
      for (int query = firstQuery; query < tokens; query++) {
        attend(head, query, sum);
        write(head, query, sum);
      }
    }
  }

  private void attend(int head, int query, float[] sum) {
    Arrays.fill(sum, 0);
    float max = Float.NEGATIVE_INFINITY;
    float denominator = 0;
    for (int key = 0; key <= query; key++) {
      float score = scale * dot(query * width + head * d, key * width + (heads + head) * d);
      if (score > max) { // what is there was divided by too little
        float factor = (float) Math.exp(max - score);
        denominator *= factor;
        scale(sum, factor);
        max = score;
      }
      float weight = (float) Math.exp(score - max);
      denominator += weight;
      add(weight, key * width + (2 * heads + head) * d, sum);
    }
    scale(sum, 1 / denominator);
  }

  private static void scale(float[] row, float factor) {
    for (int i = 0; i < row.length; i++) {
      row[i] *= factor;
    }
  }

  private void write(int head, int query, float[] y) {
    long at = out.offset(query - firstQuery, head * d);
    MemorySegment.copy(y, 0, out.data(), CpuCandidate.F32, at, d);
  }

  private void maps(float[] row) {
    for (int head = 0; head < heads; head++) {
      for (int query = 0; query < tokens; query++) {
        score(head, query, row);
        softmax(row, query + 1);
        long at = out.offset(head * tokens + query, 0);
        MemorySegment.copy(row, 0, out.data(), CpuCandidate.F32, at, query + 1);
      }
    }
  }
}
