package dev.loupe.cuda.kernels;

import dev.loupe.cuda.driver.Element;
import java.util.Arrays;
import java.util.Random;

/**
 * A linear map of random numbers and its result in double precision. Values are such as their
 * elements hold exactly, so that only the kernel's own rounding is measured.
 */
public final class LinearProblem {
  /** NaN rows after those in use: who reads or writes too far is seen. */
  static final int SPARE = 3;

  final Element weightElement;
  final Element xElement;
  public final int rows;
  final int in;
  public final int outputs;
  final float[] x; // [rows + SPARE, in]
  final float[] w; // [outputs, in]
  final float[] bias; // [outputs]

  public LinearProblem(Element weight, Element x, int rows, int in, int outputs, long seed) {
    this.weightElement = weight;
    this.xElement = x;
    this.rows = rows;
    this.in = in;
    this.outputs = outputs;
    Random random = new Random(seed);
    this.x = values(random, x, (rows + SPARE) * in);
    this.w = values(random, weight, outputs * in);
    this.bias = values(random, Element.F32, outputs);
    Arrays.fill(this.x, rows * in, this.x.length, Float.NaN);
  }

  /** Half of them within 1, some of them thousands of times smaller. */
  private static float[] values(Random random, Element element, int n) {
    float[] v = new float[n];
    for (int i = 0; i < n; i++) {
      float f = random.nextFloat(-1, 1);
      v[i] = rounded(element, random.nextInt(4) == 0 ? f * 0x1p-12f : f);
    }
    return v;
  }

  static float rounded(Element element, float v) {
    return switch (element) {
      case F16 -> Float.float16ToFloat(Float.floatToFloat16(v));
      case BF16 -> {
        int bits = Float.floatToRawIntBits(v);
        yield Float.intBitsToFloat((bits + 0x7fff + (bits >>> 16 & 1)) & 0xffff0000);
      }
      default -> v;
    };
  }

  /** Half a unit in the last place of a result near {@code v}. */
  static double rounding(Element element, double v) {
    return switch (element) {
      case F16 -> Math.max(Math.abs(v) * 0x1p-11, 0x1p-25);
      case BF16 -> Math.abs(v) * 0x1p-8;
      default -> Math.abs(v) * 0x1p-24;
    };
  }

  /** x . W^T + b, its possible error in f32, and what an epilogue makes of both. */
  record Expected(double value, double error) {
    Expected plus(double residual) {
      double sum = value + residual;
      return new Expected(sum, error + rounding(Element.F32, sum));
    }

    /** No activation is steeper than 1.13; each is a few roundings of numbers up to z, e^z. */
    Expected activated(KernelActivation f) {
      double y = f.of(value);
      return new Expected(y, 1.2 * error + 1e-5 * Math.abs(y));
    }

    Expected stored(Element element) {
      return new Expected(value, error + rounding(element, Math.abs(value) + error));
    }
  }

  /**
   * @param narrowed the element that x is rounded to before it is multiplied
   * @param splits true if each operand is split in two tf32
   */
  Expected expected(int row, int output, boolean withBias, Element narrowed, boolean splits) {
    double sum = 0;
    double magnitude = 0;
    for (int k = 0; k < in; k++) {
      double product = (double) rounded(narrowed, x[row * in + k]) * w[output * in + k];
      sum += product;
      magnitude += Math.abs(product);
    }
    double b = withBias ? bias[output] : 0;
    // tensor cores cut off 1.5 units in the last place for each product (linear_v4.cuh): over all
    // of
    // k, or where operands are split over 8 of k with three products each, which ordinary additions
    // join; and hi.hi + hi.lo + lo.hi leaves out 3 * 2^-22 of each product
    double split = 3 * 8 * 1.5 * 0x1p-23 + (in / 8 + 2) * 0x1p-24 + 3 * 0x1p-22;
    double error = magnitude * (splits ? split : 1.5 * (in + 1) * 0x1p-23);
    return new Expected(sum + b, error + rounding(Element.F32, sum + b));
  }

  @Override
  public String toString() {
    return "W %s, x %s, R %d, in %d, out %d"
        .formatted(weightElement.suffix(), xElement.suffix(), rows, in, outputs);
  }
}
