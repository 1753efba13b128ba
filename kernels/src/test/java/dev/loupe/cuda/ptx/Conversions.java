package dev.loupe.cuda.ptx;

import dev.loupe.cuda.ptx.Step.Action.Plain;
import dev.loupe.cuda.ptx.text.Type;
import java.util.List;

/** {@code cvt} (PTX ISA, "Data Movement and Conversion Instructions: cvt"). */
final class Conversions {
  private Conversions() {}

  static Plain decode(Statement s) {
    String to = s.parts().get(s.parts().size() - 2);
    return switch (to) {
      case "f16x2" -> // a goes to the upper half
          Lanes.binary(
              exactly(s, "rn", "f32"),
              -1,
              (a, b) -> Floats.toHalf(Floats.f32(a)) << 16 | Floats.toHalf(Floats.f32(b)));
      case "bf16x2" ->
          Lanes.binary(
              exactly(s, "rn", "f32"),
              -1,
              (a, b) -> Floats.toBfloat(Floats.f32(a)) << 16 | Floats.toBfloat(Floats.f32(b)));
      case "tf32" -> Lanes.unary(exactly(s, "rna", "f32"), -1, a -> Floats.toTf32(Floats.f32(a)));
      default -> scalar(s, s.type(s.parts().size() - 2), s.type());
    };
  }

  private static Statement exactly(Statement s, String rounding, String from) {
    if (!s.has(rounding) || !s.parts().getLast().equals(from)) {
      throw s.unknown();
    }
    return s.modifiers(2, rounding);
  }

  private static Plain scalar(Statement s, Type to, Type from) {
    long mask = s.mask(s.register(0));
    if (!to.isFloat() && !from.isFloat()) {
      s.modifiers(2);
      return Lanes.unary(s, mask, a -> to.integer(from.integer(a)));
    }
    List<String> modifiers = s.parts().subList(1, s.parts().size() - 2);
    String rounding = modifiers.isEmpty() ? "" : modifiers.getFirst();
    if (modifiers.size() > 1) {
      throw s.unknown();
    }
    return Lanes.unary(
        s,
        mask,
        !from.isFloat()
            ? fromInteger(s, to, from, rounding)
            : !to.isFloat() ? toInteger(s, to, from, rounding) : floats(s, to, from, rounding));
  }

  private static Lanes.Unary fromInteger(Statement s, Type to, Type from, String rounding) {
    if (!rounding.equals("rn")) {
      throw s.unknown();
    }
    boolean unsigned64 = from == Type.U64;
    return switch (to) {
      case F32 -> a -> Floats.bits(unsigned64 ? unsignedFloat(a) : (float) from.integer(a));
      case F64 -> a -> Floats.bits(unsigned64 ? unsignedDouble(a) : (double) from.integer(a));
      default -> throw s.unknown();
    };
  }

  // Half of an unsigned number, with what is cut off in its last bit, rounds as the whole does.

  private static float unsignedFloat(long a) {
    return a >= 0 ? (float) a : (float) ((a >>> 1) | (a & 1)) * 2;
  }

  private static double unsignedDouble(long a) {
    return a >= 0 ? (double) a : (double) ((a >>> 1) | (a & 1)) * 2;
  }

  private static double rounded(Statement s, double x, String rounding) {
    return switch (rounding) {
      case "rni" -> Math.rint(x);
      case "rzi" -> x < 0 ? Math.ceil(x) : Math.floor(x);
      case "rmi" -> Math.floor(x);
      case "rpi" -> Math.ceil(x);
      default -> throw s.unknown();
    };
  }

  /** What is out of range becomes the nearest that there is. */
  private static Lanes.Unary toInteger(Statement s, Type to, Type from, String rounding) {
    rounded(s, 0, rounding); // it is known
    int bits = to.bits();
    double least = to.isSigned() ? -Math.scalb(1.0, bits - 1) : 0;
    double end = Math.scalb(1.0, to.isSigned() ? bits - 1 : bits);
    // NaN is 0 between 32 bits and fewer, else the top bit
    long nan = from == Type.F64 || bits == 64 ? 1L << (bits - 1) : 0;
    return a -> {
      double x = rounded(s, Floats.value(from, a, false), rounding);
      if (Double.isNaN(x)) {
        return nan;
      }
      if (x <= least) {
        return to.isSigned() ? 1L << (bits - 1) : 0;
      }
      if (x >= end) {
        return to.isSigned() ? (1L << (bits - 1)) - 1 : Lanes.mask(to);
      }
      return x >= 0x1p63 ? (long) (x - 0x1p63) + Long.MIN_VALUE : (long) x;
    };
  }

  private static Lanes.Unary floats(Statement s, Type to, Type from, String rounding) {
    return switch (from + " to " + to + (rounding.isEmpty() ? "" : " " + rounding)) {
      case "F16 to F32" -> a -> Floats.bits(Floats.half(a));
      case "BF16 to F32" -> a -> Floats.bits(Floats.bfloat(a));
      case "F32 to F16 rn" -> a -> Floats.toHalf(Floats.f32(a));
      case "F32 to BF16 rn" -> a -> Floats.toBfloat(Floats.f32(a));
      case "F32 to F64" -> a -> Floats.bits((double) Floats.f32(a));
      case "F64 to F32 rn" -> a -> Floats.bits((float) Floats.f64(a));
      case "F32 to F32 sat" -> // NaN becomes 0
          a -> Floats.bits(Floats.f32(a) > 0 ? Math.min(Floats.f32(a), 1) : 0f);
      case "F32 to F32 rni", "F32 to F32 rzi", "F32 to F32 rmi", "F32 to F32 rpi" ->
          a -> Floats.bits((float) rounded(s, Floats.f32(a), rounding));
      case "F64 to F64 rni", "F64 to F64 rzi", "F64 to F64 rmi", "F64 to F64 rpi" ->
          a -> Floats.bits(rounded(s, Floats.f64(a), rounding));
      default -> throw s.unknown();
    };
  }
}
