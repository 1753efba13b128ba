package dev.loupe.cuda.ptx;

import dev.loupe.cuda.ptx.text.PtxException;
import dev.loupe.cuda.ptx.text.Type;

/** Floating-point values in the bits of registers, and the ways to round to them. */
final class Floats {
  private static final long NAN = 0x7fff_ffffL; // the NaN that instructions make

  private Floats() {}

  static float f32(long register) {
    return Float.intBitsToFloat((int) register);
  }

  static double f64(long register) {
    return Double.longBitsToDouble(register);
  }

  static long bits(float x) {
    return Float.isNaN(x) ? NAN : Float.floatToRawIntBits(x) & 0xffff_ffffL;
  }

  static long bits(double x) {
    return Double.isNaN(x) ? 0xfff8_0000_0000_0000L : Double.doubleToRawLongBits(x);
  }

  /** Subnormal numbers become zeros of their sign, as .ftz asks. */
  static float flushed(float x, boolean flush) {
    return flush && Math.abs(x) < Float.MIN_NORMAL ? Math.copySign(0f, x) : x;
  }

  /** An f32 or f64 as a double, exactly. */
  static double value(Type type, long register, boolean flush) {
    return switch (type) {
      case F32 -> flushed(f32(register), flush);
      case F64 -> f64(register);
      default -> throw new PtxException("no arithmetic on " + type);
    };
  }

  static float half(long bits) {
    return Float.float16ToFloat((short) bits);
  }

  static float bfloat(long bits) {
    return Float.intBitsToFloat((int) bits << 16);
  }

  /** To the nearest f16, ties to even. */
  static long toHalf(float x) {
    return Float.isNaN(x) ? 0x7fff : Float.floatToFloat16(x) & 0xffffL;
  }

  /**
   * To the nearest bf16, ties to even: the upper half of the bits, with the next value in doubt.
   */
  static long toBfloat(float x) {
    if (Float.isNaN(x)) {
      return 0x7fff;
    }
    int bits = Float.floatToRawIntBits(x);
    int upper = bits >>> 16;
    int lower = bits & 0xffff;
    boolean up = lower > 0x8000 || (lower == 0x8000 && (upper & 1) != 0);
    return up ? upper + 1L : upper; // over the largest finite value lies infinity
  }

  /**
   * To the nearest tf32, which has 10 bits behind the point; ties away from zero. The low 13 bits
   * of a register are not part of tf32; here they become 0.
   */
  static long toTf32(float x) {
    if (Float.isNaN(x) || Float.isInfinite(x)) {
      return bits(x) & ~0x1fffL;
    }
    int bits = Float.floatToRawIntBits(x);
    int down = bits & ~0x1fff;
    return ((bits & 0x1fff) >= 0x1000 ? down + 0x2000 : down) & 0xffff_ffffL;
  }

  /** {@code a b + c} rounded once, towards minus infinity. */
  static float fmaDown(float a, float b, float c) {
    double product = (double) a * b; // exact: 48 bits
    double sum = product + c;
    // what the sum lost (Knuth's two-sum)
    double of = sum - product;
    double lost = product - (sum - of) + (c - of);
    float nearest = (float) sum;
    if (Float.isNaN(nearest) || Double.isInfinite(sum)) {
      return nearest;
    }
    double above = nearest - sum; // exact
    return above > 0 || (above == 0 && lost < 0) ? Math.nextDown(nearest) : nearest;
  }
}
