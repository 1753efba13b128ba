package dev.loupe.cuda.emulator;

import dev.loupe.cuda.driver.Element;

/** What a value becomes when it is stored as an element. */
public final class RoundingTo {
  private RoundingTo() {}

  /** {@code x} rounded to the nearest value of {@code element}, ties to even. */
  public static float nearest(Element element, float x) {
    return switch (element) {
      case F16 -> Float.float16ToFloat(Float.floatToFloat16(x));
      case BF16 -> bf16(x);
      default -> x;
    };
  }

  /** Each of {@code x} rounded. */
  public static float[] nearest(Element element, float[] x) {
    float[] rounded = new float[x.length];
    for (int i = 0; i < x.length; i++) {
      rounded[i] = nearest(element, x[i]);
    }
    return rounded;
  }

  private static float bf16(float x) {
    if (Float.isNaN(x)) {
      return x;
    }
    int bits = Float.floatToRawIntBits(x);
    int halfWay = 0x7fff + (bits >>> 16 & 1);
    return Float.intBitsToFloat(bits + halfWay & 0xffff0000);
  }

  /** Largest relative error of rounding to {@code element}: 2^-(digits). */
  public static double relative(Element element) {
    return switch (element) {
      case F16 -> 0x1p-11;
      case BF16 -> 0x1p-8;
      default -> 0x1p-24;
    };
  }

  /** Half the distance between the smallest values of {@code element}. */
  public static double smallest(Element element) {
    return element == Element.F16 ? 0x1p-25 : 0x1p-134;
  }
}
