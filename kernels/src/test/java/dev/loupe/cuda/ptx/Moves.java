package dev.loupe.cuda.ptx;

import dev.loupe.cuda.ptx.Step.Action.Plain;
import dev.loupe.cuda.ptx.text.Operand;
import dev.loupe.cuda.ptx.text.Type;

/** Values go from register to register as they are. */
final class Moves {
  private Moves() {}

  static Plain decode(Statement s) {
    return switch (s.opcode()) {
      case "mov" -> move(s.modifiers(1).count(2));
      // all generic addresses that kernels have are those of global memory
      case "cvta" -> {
        s.modifiers(1, "to", "global");
        if (!s.has("global")) {
          throw s.unknown();
        }
        yield Lanes.unary(s, -1, a -> a);
      }
      case "selp" -> {
        Type type = s.modifiers(1).type();
        yield Lanes.ternary(s, Lanes.mask(type), (a, b, p) -> p != 0 ? a : b);
      }
      default -> throw s.unknown();
    };
  }

  private static Plain move(Statement s) {
    int bits = s.type().bits();
    if (s.operands().get(1) instanceof Operand.Vector parts) {
      return pack(s.register(0), parts.toArray(), bits / parts.registers().size());
    }
    if (s.operands().get(0) instanceof Operand.Vector parts) {
      return unpack(parts.toArray(), s.register(1), bits / parts.registers().size());
    }
    return Lanes.unary(s, Lanes.mask(s.type()), a -> a);
  }

  private static Plain pack(int to, int[] parts, int bits) {
    long ones = (1L << bits) - 1;
    return (warp, lanes) -> {
      for (int lane = 0; lane < Warp.LANES; lane++) {
        if ((lanes >>> lane & 1) != 0) {
          long value = 0;
          for (int i = 0; i < parts.length; i++) {
            value |= (warp.registers[parts[i]][lane] & ones) << (i * bits);
          }
          warp.registers[to][lane] = value;
        }
      }
    };
  }

  private static Plain unpack(int[] parts, int from, int bits) {
    long ones = (1L << bits) - 1;
    return (warp, lanes) -> {
      for (int lane = 0; lane < Warp.LANES; lane++) {
        if ((lanes >>> lane & 1) != 0) {
          long value = warp.registers[from][lane];
          for (int i = 0; i < parts.length; i++) {
            warp.registers[parts[i]][lane] = (value >>> (i * bits)) & ones;
          }
        }
      }
    };
  }
}
