package dev.loupe.cuda.ptx;

import dev.loupe.cuda.ptx.Step.Action.Plain;
import dev.loupe.cuda.ptx.text.PtxException;
import dev.loupe.cuda.ptx.text.Type;

/** Integer arithmetic, logic and shifts (PTX ISA, "Integer Arithmetic", "Logic and Shift"). */
final class IntegerInstructions {
  private IntegerInstructions() {}

  static Plain decode(Statement s) {
    return switch (s.opcode()) {
      case "mul", "mad" -> multiply(s);
      case "bfi" -> insert(s);
      case "bfind" -> find(s);
      case "popc", "clz", "brev", "not", "neg", "abs" -> unary(s);
      default -> binary(s);
    };
  }

  private static Plain unary(Statement s) {
    Type type = s.modifiers(1).type();
    int bits = type.bits();
    // popc and clz write 32 bits whatever they count
    long mask = s.opcode().equals("popc") || s.opcode().equals("clz") ? -1 : Lanes.mask(type);
    return Lanes.unary(
        s,
        mask,
        switch (s.opcode()) {
          case "popc" -> a -> Long.bitCount(type.integer(a));
          case "clz" -> a -> Long.numberOfLeadingZeros(type.integer(a)) - (64 - bits);
          case "brev" -> a -> Long.reverse(a) >>> (64 - bits);
          case "not" -> a -> ~a;
          case "neg" -> a -> -a;
          case "abs" -> a -> Math.abs(type.integer(a));
          default -> throw s.unknown();
        });
  }

  private static Plain binary(Statement s) {
    Type type = s.modifiers(1).type();
    return Lanes.binary(s, Lanes.mask(type), function(s, type));
  }

  private static Lanes.Binary function(Statement s, Type type) {
    boolean signed = type.isSigned();
    int bits = type.bits();
    return switch (s.opcode()) {
      case "add" -> (a, b) -> a + b;
      case "sub" -> (a, b) -> a - b;
      case "and" -> (a, b) -> a & b;
      case "or" -> (a, b) -> a | b;
      case "xor" -> (a, b) -> a ^ b;
      // the amount is an unsigned number of 32 bits; all of it counts
      case "shl" -> (a, b) -> (b & 0xffff_ffffL) >= bits ? 0 : a << b;
      case "shr" ->
          (a, b) -> {
            long by = b & 0xffff_ffffL;
            return signed
                ? type.integer(a) >> Math.min(by, bits - 1)
                : by >= bits ? 0 : type.integer(a) >>> by;
          };
      case "min" -> (a, b) -> compare(type, a, b) <= 0 ? a : b;
      case "max" -> (a, b) -> compare(type, a, b) >= 0 ? a : b;
      case "div" ->
          (a, b) -> {
            long x = type.integer(a);
            long y = nonZero(type.integer(b));
            return signed ? x / y : Long.divideUnsigned(x, y);
          };
      case "rem" ->
          (a, b) -> {
            long x = type.integer(a);
            long y = nonZero(type.integer(b));
            return signed ? x % y : Long.remainderUnsigned(x, y);
          };
      default -> throw s.unknown();
    };
  }

  private static long nonZero(long divisor) {
    if (divisor == 0) {
      throw new PtxException("division by zero");
    }
    return divisor;
  }

  static int compare(Type type, long a, long b) {
    long x = type.integer(a);
    long y = type.integer(b);
    return type.isSigned() ? Long.compare(x, y) : Long.compareUnsigned(x, y);
  }

  /** mul and mad with .lo, .hi or .wide, the part of the product that is kept. */
  private static Plain multiply(Statement s) {
    Type type = s.modifiers(1, "lo", "hi", "wide").type();
    int bits = type.bits();
    boolean high = s.has("hi");
    boolean wide = s.has("wide");
    if ((wide && bits == 64) || !(high || wide || s.has("lo"))) {
      throw s.unknown();
    }
    long mask = wide && bits < 32 ? (1L << (2 * bits)) - 1 : wide ? -1 : Lanes.mask(type);
    Lanes.Binary product =
        !high
            ? (a, b) -> type.integer(a) * type.integer(b)
            : bits < 64
                ? (a, b) -> (type.integer(a) * type.integer(b)) >>> bits
                : type.isSigned() ? Math::multiplyHigh : Math::unsignedMultiplyHigh;
    return s.opcode().equals("mul")
        ? Lanes.binary(s, mask, product)
        : Lanes.ternary(s, mask, (a, b, c) -> product.of(a, b) + c);
  }

  /** bfi f, a, b, c, d: the low d bits of a, put into b from bit c on. */
  private static Plain insert(Statement s) {
    Type type = s.modifiers(1).count(5).type();
    int[] r = {s.register(0), s.register(1), s.register(2), s.register(3), s.register(4)};
    int bits = type.bits();
    return (warp, lanes) -> {
      for (int lane = 0; lane < Warp.LANES; lane++) {
        if ((lanes >>> lane & 1) != 0) {
          int at = (int) warp.registers[r[3]][lane] & 0xff;
          int length = Math.min((int) warp.registers[r[4]][lane] & 0xff, Math.max(0, bits - at));
          long field = length == 0 ? 0 : (-1L >>> (64 - length)) << at;
          long a = at < bits ? warp.registers[r[1]][lane] << at : 0;
          long b = warp.registers[r[2]][lane];
          warp.registers[r[0]][lane] = ((a & field) | (b & ~field)) & Lanes.mask(type);
        }
      }
    };
  }

  private static Plain find(Statement s) {
    Type type = s.modifiers(1, "shiftamt").type();
    int bits = type.bits();
    boolean shift = s.has("shiftamt");
    return Lanes.unary(
        s,
        0xffff_ffffL,
        a -> {
          long x = type.integer(a);
          long magnitude = type.isSigned() && x < 0 ? ~x : x;
          int position = 63 - Long.numberOfLeadingZeros(magnitude);
          return position < 0 ? -1 : shift ? bits - 1 - position : position;
        });
  }
}
