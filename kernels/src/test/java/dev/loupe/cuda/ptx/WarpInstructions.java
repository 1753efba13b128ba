package dev.loupe.cuda.ptx;

import dev.loupe.cuda.ptx.Step.Action;
import dev.loupe.cuda.ptx.text.Operand;
import dev.loupe.cuda.ptx.text.PtxException;
import dev.loupe.cuda.ptx.text.Type;

/** What lanes of a warp tell each other (PTX ISA, "shfl.sync", "vote.sync", "activemask"). */
final class WarpInstructions {
  private WarpInstructions() {}

  /** shfl.sync.mode.b32 d|p, a, b, c, mask. */
  static Action shuffle(Statement s) {
    s.modifiers(1, "sync", "up", "down", "bfly", "idx").count(5);
    String mode = s.parts().get(2);
    if (s.type() != Type.B32 || !s.has("sync") || s.parts().size() != 4) {
      throw s.unknown();
    }
    int d = s.operands().getFirst() instanceof Operand.Pair(int r, _) ? r : s.register(0);
    int p = s.operands().getFirst() instanceof Operand.Pair(_, int r) ? r : -1;
    int a = s.register(1);
    int b = s.register(2);
    int c = s.register(3);
    return new Action.Collective(
        s.register(4),
        (warp, lanes) -> {
          long[] values = warp.registers[a].clone();
          for (int lane = 0; lane < Warp.LANES; lane++) {
            if ((lanes >>> lane & 1) == 0) {
              continue;
            }
            int source = source(mode, lane, warp.registers[b][lane], warp.registers[c][lane]);
            boolean inRange = source >= 0;
            int from = inRange ? source : lane;
            if ((lanes >>> from & 1) == 0) {
              throw new PtxException(
                  "lane %d reads lane %d, which is not there".formatted(lane, from));
            }
            warp.registers[d][lane] = values[from];
            if (p >= 0) {
              warp.registers[p][lane] = inRange ? 1 : 0;
            }
          }
        });
  }

  /**
   * The lane that a lane reads, or -1 where it is out of range. c has the bound in its low five
   * bits and in bits 8 to 12 the bits of a lane's number that tell its segment.
   */
  private static int source(String mode, int lane, long b, long c) {
    int by = (int) b & 31;
    int clamp = (int) c & 31;
    int segment = (int) (c >> 8) & 31;
    int bound = (lane & segment) | (clamp & ~segment);
    int source =
        switch (mode) {
          case "up" -> lane - by;
          case "down" -> lane + by;
          case "bfly" -> lane ^ by;
          default -> (lane & segment) | (by & ~segment);
        };
    boolean inRange = mode.equals("up") ? source >= bound : source <= bound;
    return inRange ? source : -1;
  }

  /** vote.sync.ballot.b32 d, p, mask. */
  static Action vote(Statement s) {
    s.modifiers(1, "sync", "ballot").count(3);
    if (!s.name().equals("vote.sync.ballot.b32")) {
      throw s.unknown();
    }
    int d = s.register(0);
    boolean negated = s.operands().get(1) instanceof Operand.Not;
    int p = s.operands().get(1) instanceof Operand.Not(int register) ? register : s.register(1);
    return new Action.Collective(
        s.register(2),
        (warp, lanes) -> {
          int ballot = 0;
          for (int lane = 0; lane < Warp.LANES; lane++) {
            ballot |= warp.registers[p][lane] != 0 != negated ? 1 << lane : 0;
          }
          warp.fill(d, lanes, ballot & lanes & 0xffff_ffffL);
        });
  }

  static Action activeMask(Statement s) {
    int d = s.modifiers(1).count(1).register(0);
    Action.Plain work = (warp, lanes) -> warp.fill(d, lanes, lanes & 0xffff_ffffL);
    return work;
  }
}
