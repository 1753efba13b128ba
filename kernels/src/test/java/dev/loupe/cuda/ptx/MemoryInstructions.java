package dev.loupe.cuda.ptx;

import dev.loupe.cuda.ptx.Step.Action.Plain;
import dev.loupe.cuda.ptx.text.Operand;
import dev.loupe.cuda.ptx.text.PtxException;
import dev.loupe.cuda.ptx.text.Type;
import java.util.Locale;

/** What reads and writes memory (PTX ISA, "ld", "st", "atom", "red", "cp.async"). */
final class MemoryInstructions {
  /**
   * Where an address points to. Without a state space it is generic, here that of global memory.
   */
  private enum Space {
    PARAM,
    SHARED,
    GLOBAL;

    static Space of(Statement s) {
      for (Space space : values()) {
        if (s.has(space.name().toLowerCase(Locale.ROOT))) {
          return space;
        }
      }
      return GLOBAL;
    }

    GlobalMemory.Range range(Warp warp, long address, int size) {
      Memory.requireAligned(address, size);
      return switch (this) {
        case PARAM -> warp.block().parameters();
        case SHARED -> warp.block().shared(address, size);
        case GLOBAL -> warp.block().memory().range(address, size);
      };
    }
  }

  private MemoryInstructions() {}

  static Plain load(Statement s) {
    s.modifiers(
        1, "param", "shared", "global", "nc", "v2", "v4", "volatile", "relaxed", "acquire", "gpu");
    Type type = s.count(2).type();
    Space space = Space.of(s);
    int[] to = vector(s, 0);
    Operand.Address from = s.address(1);
    int size = type.bytes();
    return (warp, lanes) -> {
      for (int lane = 0; lane < Warp.LANES; lane++) {
        if ((lanes >>> lane & 1) != 0) {
          long address = warp.registers[from.base()][lane] + from.offset();
          GlobalMemory.Range range = space.range(warp, address, size * to.length);
          for (int i = 0; i < to.length; i++) {
            long value = Memory.load(range, address + (long) i * size, size);
            warp.registers[to[i]][lane] = type.integer(value) & s.mask(to[i]);
          }
        }
      }
    };
  }

  static Plain store(Statement s) {
    s.modifiers(1, "shared", "global", "v2", "v4", "volatile", "relaxed", "release", "gpu");
    Type type = s.count(2).type();
    Space space = Space.of(s);
    Operand.Address to = s.address(0);
    int[] from = vector(s, 1);
    int size = type.bytes();
    return (warp, lanes) -> {
      for (int lane = 0; lane < Warp.LANES; lane++) {
        if ((lanes >>> lane & 1) != 0) {
          long address = warp.registers[to.base()][lane] + to.offset();
          GlobalMemory.Range range = space.range(warp, address, size * from.length);
          for (int i = 0; i < from.length; i++) {
            Memory.store(range, address + (long) i * size, size, warp.registers[from[i]][lane]);
          }
        }
      }
    };
  }

  /** As many registers as .v2 or .v4 says. */
  private static int[] vector(Statement s, int operand) {
    int[] registers = s.vector(operand);
    if (registers.length != (s.has("v2") ? 2 : s.has("v4") ? 4 : 1)) {
      throw s.unknown();
    }
    return registers;
  }

  /** {@code atom d, [a], b} and {@code red [a], b}: lanes come one after the other. */
  static Plain atomic(Statement s, boolean result) {
    s.modifiers(1, "shared", "global", "relaxed", "acquire", "release", "acq_rel", "gpu", "add");
    Type type = s.count(result ? 3 : 2).type();
    if (!s.has("add") || type.isFloat()) {
      throw s.unknown();
    }
    Space space = Space.of(s);
    Operand.Address at = s.address(result ? 1 : 0);
    int d = result ? s.register(0) : -1;
    int b = s.register(result ? 2 : 1);
    int size = type.bytes();
    return (warp, lanes) -> {
      for (int lane = 0; lane < Warp.LANES; lane++) {
        if ((lanes >>> lane & 1) != 0) {
          long address = warp.registers[at.base()][lane] + at.offset();
          GlobalMemory.Range range = space.range(warp, address, size);
          long old = Memory.load(range, address, size);
          Memory.store(range, address, size, old + warp.registers[b][lane]);
          if (result) {
            warp.registers[d][lane] = old;
          }
        }
      }
    };
  }

  static Plain asyncCopy(Statement s) {
    if (s.has("commit_group")) {
      s.modifiers(0, "async", "commit_group").count(0);
      return (warp, lanes) -> each(lanes, lane -> warp.copies(lane).commit());
    }
    if (s.has("wait_group")) {
      int pending = s.modifiers(0, "async", "wait_group").count(1).register(0);
      return (warp, lanes) ->
          each(lanes, lane -> warp.copies(lane).await(warp.registers[pending][lane]));
    }
    s.modifiers(0, "async", "cg", "shared", "global");
    if (!s.name().equals("cp.async.cg.shared.global")) {
      throw s.unknown();
    }
    Operand.Address to = s.address(0);
    Operand.Address from = s.address(1);
    int bytes = s.register(2);
    int read = s.operands().size() == 3 ? bytes : s.count(4).register(3);
    return (warp, lanes) ->
        each(
            lanes,
            lane -> {
              if (warp.registers[bytes][lane] != 16) {
                throw new PtxException("cp.async.cg copies 16 bytes");
              }
              long target = warp.registers[to.base()][lane] + to.offset();
              long source = warp.registers[from.base()][lane] + from.offset();
              int size = (int) warp.registers[read][lane];
              warp.copies(lane).add(() -> copy(warp, target, source, size));
            });
  }

  /** 16 bytes, of which {@code size} are read and the rest is zeros. */
  private static void copy(Warp warp, long target, long source, int size) {
    if (size < 0 || size > 16) {
      throw new PtxException("cp.async reads %d of 16 bytes".formatted(size));
    }
    GlobalMemory.Range to = Space.SHARED.range(warp, target, 16);
    Memory.requireAligned(source, 16);
    for (int i = 0; i < 16; i++) {
      long value =
          i < size ? Memory.load(warp.block().memory().range(source + i, 1), source + i, 1) : 0;
      Memory.store(to, target + i, 1, value);
    }
  }

  private interface Lane {
    void run(int lane);
  }

  private static void each(int lanes, Lane work) {
    for (int lane = 0; lane < Warp.LANES; lane++) {
      if ((lanes >>> lane & 1) != 0) {
        work.run(lane);
      }
    }
  }
}
