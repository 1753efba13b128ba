package dev.loupe.cuda.ptx;

import dev.loupe.cuda.ptx.text.PtxException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * 32 threads with a program counter each. Of those that can go on, the ones that are furthest back
 * go first, together, until they meet others: so lanes that parted at a branch come together again
 * where the branches do.
 */
final class Warp {
  static final int LANES = 32;

  /** [register][lane]; bits above the register's width are 0. */
  final long[][] registers;

  private final Block block;
  private final List<Step> code;
  private final int[] pcs = new int[LANES];
  private final List<AsyncCopies> copies = new ArrayList<>();
  private int alive;
  private int atBarrier; // of the block
  private int gathered; // waiting for other lanes of a collective

  Warp(Block block, Module.Entry entry, int threads) {
    this.block = block;
    code = entry.code();
    alive = threads == LANES ? -1 : (1 << threads) - 1;
    Registers of = entry.registers();
    registers = new long[of.size()][LANES];
    for (int r = 0; r < registers.length; r++) { // what nobody has written yet
      Arrays.fill(registers[r], of.bits(r) == 1 ? 1 : 0xdead_beef_dead_beefL >>> (64 - of.bits(r)));
    }
    of.constants().forEach((value, register) -> Arrays.fill(registers[register], value));
    for (int lane = 0; lane < LANES; lane++) {
      copies.add(new AsyncCopies());
    }
  }

  Block block() {
    return block;
  }

  /** Lanes that have not ended. */
  int alive() {
    return alive;
  }

  boolean isDone() {
    return alive == 0;
  }

  AsyncCopies copies(int lane) {
    return copies.get(lane);
  }

  void fill(int register, int lanes, long value) {
    for (int lane = 0; lane < LANES; lane++) {
      if ((lanes >>> lane & 1) != 0) {
        registers[register][lane] = value;
      }
    }
  }

  /** Lanes leave a barrier. */
  void goOn(int lanes) {
    atBarrier &= ~lanes;
    for (int lane = 0; lane < LANES; lane++) {
      pcs[lane] += lanes >>> lane & 1;
    }
  }

  String waiting() {
    StringBuilder text = new StringBuilder();
    for (int lane = 0; lane < LANES; lane++) {
      if (((atBarrier | gathered) >>> lane & 1) != 0) {
        text.append("lane %d at %s ".formatted(lane, code.get(pcs[lane]).source()));
      }
    }
    return text.toString();
  }

  /** Runs until all lanes have ended or wait for others, or {@code most} instructions are done. */
  int run(int most) {
    int done = 0;
    while (done < most) {
      int ready = alive & ~atBarrier & ~gathered;
      if (ready == 0) {
        break;
      }
      int pc = Integer.MAX_VALUE;
      for (int rest = ready; rest != 0; rest &= rest - 1) {
        pc = Math.min(pc, pcs[Integer.numberOfTrailingZeros(rest)]);
      }
      int lanes = 0;
      int limit = Integer.MAX_VALUE; // where the next of the others are
      for (int rest = ready; rest != 0; rest &= rest - 1) {
        int lane = Integer.numberOfTrailingZeros(rest);
        if (pcs[lane] == pc) {
          lanes |= 1 << lane;
        } else {
          limit = Math.min(limit, pcs[lane]);
        }
      }
      done += run(pc, lanes, limit, most - done);
    }
    return done;
  }

  /** Runs lanes that are together until they part, wait, or come to others. */
  private int run(int pc, int lanes, int limit, int most) {
    int at = pc;
    int done = 0;
    while (at < limit && done < most) {
      Step step = code.get(at);
      int on = step.guard() < 0 ? lanes : guarded(step, lanes);
      done++;
      try {
        if (step.action() instanceof Step.Action.Plain plain) {
          if (on != 0) {
            plain.run(this, on);
          }
          at++;
        } else if (on == 0) {
          at++;
        } else if (step.action() instanceof Step.Action.Branch(int target) && on == lanes) {
          at = target;
        } else {
          put(lanes, at + 1);
          control(step.action(), at, on);
          return done;
        }
      } catch (PtxException e) {
        throw new PtxException("%s: %s".formatted(step.source(), e.getMessage()), e);
      }
    }
    put(lanes, at);
    return done;
  }

  private int guarded(Step step, int lanes) {
    long[] predicate = registers[step.guard()];
    int on = 0;
    for (int lane = 0; lane < LANES; lane++) {
      on |= (int) predicate[lane] << lane;
    }
    return (step.negated() ? ~on : on) & lanes;
  }

  private void put(int lanes, int pc) {
    for (int rest = lanes; rest != 0; rest &= rest - 1) {
      pcs[Integer.numberOfTrailingZeros(rest)] = pc;
    }
  }

  /** What takes lanes elsewhere than to the next instruction, or keeps them. */
  private void control(Step.Action action, int pc, int on) {
    switch (action) {
      case Step.Action.Branch(int target) -> put(on, target);
      case Step.Action.Exit _ -> {
        alive &= ~on;
        gathered = 0; // look again: nobody waits for a lane that has ended
        block.ended();
      }
      case Step.Action.Barrier barrier -> {
        put(on, pc);
        atBarrier |= on;
        block.arrive(this, on, pc, barrier);
      }
      case Step.Action.Collective collective -> {
        put(on, pc);
        gather(collective, pc, on);
      }
      case Step.Action.Plain _ -> throw new AssertionError("run where it stands");
    }
  }

  private void gather(Step.Action.Collective collective, int pc, int on) {
    int mask = -1;
    if (collective.mask() >= 0) {
      long[] masks = registers[collective.mask()];
      mask = (int) masks[Integer.numberOfTrailingZeros(on)];
      for (int rest = on; rest != 0; rest &= rest - 1) {
        int lane = Integer.numberOfTrailingZeros(rest);
        if ((int) masks[lane] != mask || (mask >>> lane & 1) == 0) {
          throw new PtxException("lane %d has the mask %x".formatted(lane, masks[lane]));
        }
      }
    } else if (alive != -1) {
      throw new PtxException("not all lanes of the warp are there");
    }
    int here = on;
    for (int rest = gathered; rest != 0; rest &= rest - 1) {
      int lane = Integer.numberOfTrailingZeros(rest);
      here |= pcs[lane] == pc ? 1 << lane : 0;
    }
    int wanted = mask & alive;
    if ((here & wanted) != wanted) {
      gathered |= on;
      return;
    }
    collective.work().run(this, wanted);
    gathered &= ~wanted;
    put(wanted, pc + 1);
  }
}
