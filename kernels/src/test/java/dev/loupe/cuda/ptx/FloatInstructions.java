package dev.loupe.cuda.ptx;

import dev.loupe.cuda.ptx.Step.Action.Plain;

/**
 * Arithmetic of f32 and f64 (PTX ISA, "Floating Point Instructions"). What the ISA calls
 * approximate is rounded to the nearest here; a card may be off by as much as the ISA allows.
 */
final class FloatInstructions {
  private FloatInstructions() {}

  static Plain decode(Statement s) {
    return switch (s.type()) {
      case F32 -> f32(s);
      case F64 -> f64(s);
      default -> throw s.unknown();
    };
  }

  private interface Function1 {
    float of(float a);
  }

  private interface Function2 {
    float of(float a, float b);
  }

  private interface Function3 {
    float of(float a, float b, float c);
  }

  private static Plain f32(Statement s) {
    boolean flush = s.has("ftz");
    return switch (s.opcode()) {
      case "add" -> flush ? slow(s, (a, b) -> a + b, "rn") : add(s.modifiers(1, "rn").count(3));
      case "mul" -> flush ? slow(s, (a, b) -> a * b, "rn") : mul(s.modifiers(1, "rn").count(3));
      case "fma" -> s.has("rm") ? slow(s, Floats::fmaDown) : fma(s.modifiers(1, "rn").count(4));
      case "sub" -> slow(s, (a, b) -> a - b, "rn");
      case "div" -> slow(s, (a, b) -> a / b, required(s, "rn"));
      case "min" -> slow(s, (a, b) -> isNan(a) ? b : isNan(b) ? a : Math.min(a, b));
      case "max" -> slow(s, (a, b) -> isNan(a) ? b : isNan(b) ? a : Math.max(a, b));
      case "rcp" -> slow(s, a -> 1 / a, required(s, "rn", "approx"));
      case "sqrt" -> slow(s, a -> (float) Math.sqrt(a), required(s, "rn", "approx"));
      case "rsqrt" -> slow(s, a -> (float) (1 / Math.sqrt(a)), required(s, "approx"));
      case "ex2" -> slow(s, a -> (float) Math.pow(2, a), required(s, "approx"));
      case "lg2" -> slow(s, a -> (float) (Math.log(a) / Math.log(2)), required(s, "approx"));
      // on bits, so that NaN stays what it is
      case "neg" -> Lanes.unary(s.modifiers(1), -1, a -> a ^ 0x8000_0000L);
      case "abs" -> Lanes.unary(s.modifiers(1), -1, a -> a & 0x7fff_ffffL);
      case "copysign" -> // of a, to b
          Lanes.binary(s.modifiers(1), -1, (a, b) -> (a & 0x8000_0000L) | (b & 0x7fff_ffffL));
      default -> throw s.unknown();
    };
  }

  private static boolean isNan(float x) {
    return Float.isNaN(x);
  }

  /** The one of {@code modifiers} that has to be there. */
  private static String required(Statement s, String... modifiers) {
    for (String modifier : modifiers) {
      if (s.has(modifier)) {
        return modifier;
      }
    }
    throw s.unknown();
  }

  private static Plain slow(Statement s, Function1 f, String rounding) {
    boolean flush = s.modifiers(1, rounding, "ftz").has("ftz");
    return Lanes.unary(
        s, -1, a -> Floats.bits(Floats.flushed(f.of(Floats.flushed(Floats.f32(a), flush)), flush)));
  }

  private static Plain slow(Statement s, Function2 f, String... rounding) {
    boolean flush = s.has("ftz");
    s.modifiers(1, rounding.length == 0 ? "ftz" : rounding[0], "ftz");
    return Lanes.binary(
        s,
        -1,
        (a, b) ->
            Floats.bits(
                Floats.flushed(
                    f.of(
                        Floats.flushed(Floats.f32(a), flush), Floats.flushed(Floats.f32(b), flush)),
                    flush)));
  }

  private static Plain slow(Statement s, Function3 f) {
    return Lanes.ternary(
        s.modifiers(1, "rm"),
        -1,
        (a, b, c) -> Floats.bits(f.of(Floats.f32(a), Floats.f32(b), Floats.f32(c))));
  }

  // The three that kernels spend their time on, each with a loop of its own.

  private static Plain add(Statement s) {
    int d = s.register(0);
    int a = s.register(1);
    int b = s.register(2);
    return (warp, lanes) -> {
      for (int lane = 0; lane < Warp.LANES; lane++) {
        if ((lanes >>> lane & 1) != 0) {
          warp.registers[d][lane] =
              Floats.bits(
                  Floats.f32(warp.registers[a][lane]) + Floats.f32(warp.registers[b][lane]));
        }
      }
    };
  }

  private static Plain mul(Statement s) {
    int d = s.register(0);
    int a = s.register(1);
    int b = s.register(2);
    return (warp, lanes) -> {
      for (int lane = 0; lane < Warp.LANES; lane++) {
        if ((lanes >>> lane & 1) != 0) {
          warp.registers[d][lane] =
              Floats.bits(
                  Floats.f32(warp.registers[a][lane]) * Floats.f32(warp.registers[b][lane]));
        }
      }
    };
  }

  private static Plain fma(Statement s) {
    int d = s.register(0);
    int a = s.register(1);
    int b = s.register(2);
    int c = s.register(3);
    return (warp, lanes) -> {
      for (int lane = 0; lane < Warp.LANES; lane++) {
        if ((lanes >>> lane & 1) != 0) {
          warp.registers[d][lane] =
              Floats.bits(
                  Math.fma(
                      Floats.f32(warp.registers[a][lane]),
                      Floats.f32(warp.registers[b][lane]),
                      Floats.f32(warp.registers[c][lane])));
        }
      }
    };
  }

  private static Plain f64(Statement s) {
    return switch (s.opcode()) {
      case "add" -> f64(s, (a, b) -> Floats.f64(a) + Floats.f64(b));
      case "sub" -> f64(s, (a, b) -> Floats.f64(a) - Floats.f64(b));
      case "mul" -> f64(s, (a, b) -> Floats.f64(a) * Floats.f64(b));
      case "fma" ->
          Lanes.ternary(
              s.modifiers(1, "rn"),
              -1,
              (a, b, c) -> Floats.bits(Math.fma(Floats.f64(a), Floats.f64(b), Floats.f64(c))));
      case "neg" -> Lanes.unary(s.modifiers(1), -1, a -> a ^ Long.MIN_VALUE);
      case "abs" -> Lanes.unary(s.modifiers(1), -1, a -> a & Long.MAX_VALUE);
      // 20 bits are right, the low 32 bits are 0
      case "rcp" ->
          Lanes.unary(
              s.modifiers(1, "approx", "ftz"),
              -1,
              a -> Floats.bits(1 / Floats.f64(a & ~0xffff_ffffL)) & ~0xffff_ffffL);
      default -> throw s.unknown();
    };
  }

  private interface Function64 {
    double of(long a, long b);
  }

  private static Plain f64(Statement s, Function64 f) {
    return Lanes.binary(s.modifiers(1, "rn"), -1, (a, b) -> Floats.bits(f.of(a, b)));
  }
}
