package dev.loupe.cuda.kernels;

import dev.loupe.cuda.driver.Element;
import java.util.Random;

/**
 * An attention problem over a KV cache and its answer in double precision, written in textbook
 * order; values are what the device holds after rounding to its elements.
 *
 * <p>Error bounds follow from the kernels' arithmetic: every sum is of n terms in f32, in any
 * order, so it is off by at most n 2^-24 times the sum of the terms' magnitudes.
 */
final class CachedAttention {
  static final double EPS = 0x1p-24; // half an ulp of f32, relative

  final CacheShape shape;
  final Element activations;
  final Element cache;
  final int rows;
  final float scale;
  final float[] qkv; // [R, 3C], k and v NaN: nothing may read them
  final float[] k; // [S, H, capacity, D], NaN from filled(sequence) on
  final float[] v;

  /**
   * @param filled positions of each sequence that hold keys; the others are NaN
   * @param spread standard deviation of the entries of q
   */
  CachedAttention(
      CacheShape shape,
      Element activations,
      Element cache,
      int rows,
      int[] filled,
      float spread,
      long seed) {
    this.shape = shape;
    this.activations = activations;
    this.cache = cache;
    this.rows = rows;
    scale = (float) (1 / Math.sqrt(shape.headSize()));
    Random random = new Random(seed);
    qkv = new float[rows * 3 * shape.width()];
    for (int i = 0; i < qkv.length; i++) {
      boolean isQ = i % (3 * shape.width()) < shape.width();
      qkv[i] = isQ ? round(activations, (float) random.nextGaussian() * spread) : Float.NaN;
    }
    k = values(filled, random);
    v = values(filled, random);
  }

  private float[] values(int[] filled, Random random) {
    float[] values = new float[(int) shape.elements()];
    for (int i = 0; i < values.length; i++) {
      int position = i / shape.headSize() % shape.capacity();
      int sequence = i / shape.headSize() / shape.capacity() / shape.heads();
      float x = round(cache, (float) random.nextGaussian());
      values[i] = position < filled[sequence] ? x : Float.NaN;
    }
    return values;
  }

  /** Makes key {@code to} of every sequence and head a copy of key {@code from}. */
  void copyKey(int from, int to) {
    int d = shape.headSize();
    for (int i = 0; i < shape.sequences() * shape.heads(); i++) {
      int base = i * shape.capacity() * d;
      System.arraycopy(k, base + from * d, k, base + to * d, d);
    }
  }

  static float round(Element element, float x) {
    return switch (element) {
      case F32 -> x;
      case F16 -> Float.float16ToFloat(Float.floatToFloat16(x));
      case BF16 -> {
        int bits = Float.floatToRawIntBits(x);
        yield Float.intBitsToFloat((bits + 0x7fff + (bits >>> 16 & 1)) & 0xffff0000);
      }
      default -> throw new IllegalArgumentException(element.suffix());
    };
  }

  /** Largest relative error of storing a normal number. */
  static double roundingOf(Element element) {
    return switch (element) {
      case F16 -> 0x1p-11;
      case BF16 -> 0x1p-8;
      default -> 0;
    };
  }

  /** One query against the keys 0 .. keys - 1 of its sequence. */
  Row row(int row, int head, int sequence, int keys) {
    return new Row(row, head, sequence, keys);
  }

  /** A row of the exact answer. */
  final class Row {
    /** scale q.k. */
    final double[] score;

    /** How far a score in f32 may be off. */
    final double[] scoreError;

    final double[] p;
    final double lse;
    private final int base;

    private Row(int row, int head, int sequence, int keys) {
      int d = shape.headSize();
      base = (sequence * shape.heads() + head) * shape.capacity() * d;
      int q = row * 3 * shape.width() + head * d;
      score = new double[keys];
      scoreError = new double[keys];
      p = new double[keys];
      double max = Double.NEGATIVE_INFINITY;
      for (int key = 0; key < keys; key++) {
        double magnitude = 0;
        for (int i = 0; i < d; i++) {
          double term = (double) qkv[q + i] * k[base + key * d + i];
          score[key] += term * scale;
          magnitude += Math.abs(term) * scale;
        }
        // d terms, of each of which tensor cores cut off 1.5 units in the last place
        // (linear_v4.cuh),
        // and two more roundings when the scale and the maximum come in
        scoreError[key] = 3 * (d + 2) * EPS * magnitude;
        max = Math.max(max, score[key]);
      }
      double sum = 0;
      for (int key = 0; key < keys; key++) {
        p[key] = Math.exp(score[key] - max);
        sum += p[key];
      }
      for (int key = 0; key < keys; key++) {
        p[key] /= sum;
      }
      lse = keys == 0 ? Double.NEGATIVE_INFINITY : max + Math.log(sum);
    }

    double worstScoreError() {
      double worst = 0;
      for (double e : scoreError) {
        worst = Math.max(worst, e);
      }
      return worst;
    }

    /** Relative error of the sum of exponentials: of the scores, exp2 (2 ulp), and the sum. */
    double sumError() {
      return 2 * worstScoreError() + (score.length + 16) * EPS;
    }

    /** Likewise of the sum of p v, which tensor cores may take. */
    private double valueError() {
      return 2 * worstScoreError() + 3 * (score.length + 16) * EPS;
    }

    double lseError() {
      return worstScoreError() + sumError() + 4 * EPS * (1 + Math.abs(lse));
    }

    double y(int i) {
      double sum = 0;
      for (int key = 0; key < p.length; key++) {
        sum += p[key] * v[base + key * shape.headSize() + i];
      }
      return sum;
    }

    double yError(int i) {
      double magnitude = 0;
      for (int key = 0; key < p.length; key++) {
        magnitude += p[key] * Math.abs(v[base + key * shape.headSize() + i]);
      }
      // f16 keeps no relative precision below its least normal number
      return (sumError() + valueError()) * magnitude
          + roundingOf(activations) * magnitude
          + 0x1p-25;
    }

    /**
     * Error of t = scale q.k - lse and so, relatively, of p = exp(t); lse is given in f32. CUDA's
     * expf is within 2 ulp of the right float, and so 5 EPS from the result.
     */
    double exponentError(int key) {
      return scoreError[key] + EPS * Math.abs(lse) + 6 * EPS * (1 + Math.abs(score[key] - lse));
    }

    double pError(int key, Element stored) {
      return p[key] * (Math.expm1(exponentError(key)) + roundingOf(stored))
          + (stored == Element.F16 ? 0x1p-25 : 1e-37);
    }

    double entropy() {
      double sum = 0;
      for (int key = 0; key < p.length; key++) {
        sum -= p[key] * (score[key] - lse);
      }
      return sum;
    }

    double entropyError() {
      double error = 0;
      for (int key = 0; key < p.length; key++) {
        double t = Math.abs(score[key] - lse);
        double own = exponentError(key);
        error += p[key] * (own + t * (Math.expm1(own) + (p.length + 8) * EPS));
      }
      return 2 * error + 1e-9;
    }

    double distance(int position) {
      double sum = 0;
      for (int key = 0; key < p.length; key++) {
        sum += p[key] * Math.abs(position - key);
      }
      return sum;
    }

    double distanceError(int position) {
      double error = 0;
      for (int key = 0; key < p.length; key++) {
        double relative = Math.expm1(exponentError(key)) + (p.length + 8) * EPS;
        error += p[key] * Math.abs(position - key) * relative;
      }
      return 2 * error + 1e-9;
    }
  }
}
