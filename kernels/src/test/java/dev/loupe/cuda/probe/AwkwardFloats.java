package dev.loupe.cuda.probe;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** Floats that conversions go wrong on, and what is nearest to them by the definition. */
final class AwkwardFloats {
  private static final float[] SPECIAL = {
    0f,
    -0f,
    Float.NaN,
    Float.POSITIVE_INFINITY,
    Float.NEGATIVE_INFINITY,
    Float.MIN_VALUE,
    -Float.MIN_VALUE,
    Float.MIN_NORMAL,
    Float.intBitsToFloat(0x007fffff), // the largest subnormal
    Float.intBitsToFloat(0x00012345),
    Float.MAX_VALUE,
    -Float.MAX_VALUE,
    65504f, // the largest f16
    65519.99f,
    65520f, // half way to what f16 has not
    0x1p-14f, // the smallest f16 that is normal
    0x1p-24f, // the smallest of all
    0x1p-25f, // half of it, a tie
    0x1.000002p-25f,
    0x3p-25f,
    1f,
    0x1.002p0f, // ties of 10 bits
    0x1.006p0f,
    0x1.01p0f, // and of 7
    0x1.03p0f,
    -0x1.002p0f,
    -0x1.006p0f,
    126.5f,
    128f,
    -126f,
    -126.5f,
    -149f,
    -200f
  };

  /** A value of a number. */
  interface Of {
    float at(int i);
  }

  private AwkwardFloats() {}

  /** An even number of floats: awkward ones, random bits, and 400 values of {@code f}. */
  static float[] with(long seed, Of f) {
    List<Float> all = new ArrayList<>();
    for (float x : SPECIAL) {
      all.add(x);
    }
    Random random = new Random(seed);
    while (all.size() < 600) {
      all.add(Float.intBitsToFloat(random.nextInt()));
    }
    for (int i = 0; i < 400; i++) {
      all.add(f.at(i));
    }
    float[] values = new float[all.size()];
    for (int i = 0; i < values.length; i++) {
      values[i] = all.get(i);
    }
    return values;
  }

  /** The nearest with so many bits behind the point of f32's exponent range, ties away from 0. */
  static double tiesAway(float x, int bits) {
    if (x == 0 || !Float.isFinite(x)) {
      return x;
    }
    double unit = Math.scalb(1.0, Math.max(Math.getExponent(x), Float.MIN_EXPONENT) - bits);
    double steps = Math.abs(x) / unit; // exact
    double rounded = Math.copySign(Math.floor(steps + 0.5) * unit, x);
    return (float) rounded; // infinite beyond the largest
  }

  /** The nearest with so many bits behind the point, ties to even, exponents from least to most. */
  static double tiesToEven(float x, int bits, int least, int most) {
    if (x == 0 || !Float.isFinite(x)) {
      return x;
    }
    double unit = Math.scalb(1.0, Math.max(Math.getExponent(x), least) - bits);
    double rounded = Math.rint(x / unit) * unit;
    double end = Math.scalb(1.0, most + 1);
    return Math.abs(rounded) < end ? rounded : Math.copySign(Double.POSITIVE_INFINITY, x);
  }
}
