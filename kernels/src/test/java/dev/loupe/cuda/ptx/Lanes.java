package dev.loupe.cuda.ptx;

import dev.loupe.cuda.ptx.Step.Action.Plain;
import dev.loupe.cuda.ptx.text.Type;

/** Functions of a lane's registers, for every lane that takes part. */
final class Lanes {
  private Lanes() {}

  /** d = f(a) in the bits of a register. */
  interface Unary {
    long of(long a);
  }

  /** d = f(a, b) in the bits of a register. */
  interface Binary {
    long of(long a, long b);
  }

  /** d = f(a, b, c) in the bits of a register. */
  interface Ternary {
    long of(long a, long b, long c);
  }

  /** The bits of results beyond {@code mask} are dropped. */
  static Plain unary(Statement s, long mask, Unary f) {
    int d = s.count(2).register(0);
    int a = s.register(1);
    return (warp, lanes) -> {
      long[] to = warp.registers[d];
      long[] from = warp.registers[a];
      for (int lane = 0; lane < Warp.LANES; lane++) {
        if ((lanes >>> lane & 1) != 0) {
          to[lane] = f.of(from[lane]) & mask;
        }
      }
    };
  }

  static Plain binary(Statement s, long mask, Binary f) {
    int d = s.count(3).register(0);
    int a = s.register(1);
    int b = s.register(2);
    return (warp, lanes) -> {
      long[] to = warp.registers[d];
      long[] x = warp.registers[a];
      long[] y = warp.registers[b];
      for (int lane = 0; lane < Warp.LANES; lane++) {
        if ((lanes >>> lane & 1) != 0) {
          to[lane] = f.of(x[lane], y[lane]) & mask;
        }
      }
    };
  }

  static Plain ternary(Statement s, long mask, Ternary f) {
    int d = s.count(4).register(0);
    int a = s.register(1);
    int b = s.register(2);
    int c = s.register(3);
    return (warp, lanes) -> {
      long[] to = warp.registers[d];
      long[] x = warp.registers[a];
      long[] y = warp.registers[b];
      long[] z = warp.registers[c];
      for (int lane = 0; lane < Warp.LANES; lane++) {
        if ((lanes >>> lane & 1) != 0) {
          to[lane] = f.of(x[lane], y[lane], z[lane]) & mask;
        }
      }
    };
  }

  /** All ones in the width of a type. */
  static long mask(Type type) {
    return type.bits() == 64 ? -1 : (1L << type.bits()) - 1;
  }
}
