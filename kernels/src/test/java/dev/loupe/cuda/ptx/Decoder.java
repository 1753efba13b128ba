package dev.loupe.cuda.ptx;

import dev.loupe.cuda.ptx.Step.Action;
import dev.loupe.cuda.ptx.text.Operand;
import dev.loupe.cuda.ptx.text.PtxException;
import java.util.Map;

/** Makes an action of a statement, or fails: nothing is skipped. */
final class Decoder {
  private final Map<String, Integer> labels;

  Decoder(Map<String, Integer> labels) {
    this.labels = labels;
  }

  Action decode(Statement s) {
    return switch (s.opcode()) {
      case "bra" -> branch(s);
      case "ret", "exit" -> {
        s.modifiers(0).count(0);
        yield new Action.Exit();
      }
      case "trap" -> plain((_, _) -> fail("trap"));
      case "membar", "fence" -> order(s);
      case "bar", "barrier" -> barrier(s);
      case "shfl" -> WarpInstructions.shuffle(s);
      case "vote" -> WarpInstructions.vote(s);
      case "activemask" -> WarpInstructions.activeMask(s);
      case "mma" -> TensorInstructions.multiply(s);
      case "ldmatrix" -> TensorInstructions.loadMatrix(s);
      case "ld" -> MemoryInstructions.load(s);
      case "st" -> MemoryInstructions.store(s);
      case "atom" -> MemoryInstructions.atomic(s, true);
      case "red" -> MemoryInstructions.atomic(s, false);
      case "cp" -> MemoryInstructions.asyncCopy(s);
      case "mov", "cvta", "selp" -> Moves.decode(s);
      case "setp" -> Comparisons.decode(s);
      case "cvt" -> Conversions.decode(s);
      default -> s.type().isFloat() ? FloatInstructions.decode(s) : IntegerInstructions.decode(s);
    };
  }

  private static Action plain(Action.Plain work) {
    return work;
  }

  private static void fail(String message) {
    throw new PtxException(message);
  }

  private Action branch(Statement s) {
    s.modifiers(0, "uni").count(1);
    Integer target =
        s.operands().getFirst() instanceof Operand.Label(String name) ? labels.get(name) : null;
    if (target == null) {
      throw s.unknown();
    }
    return new Action.Branch(target);
  }

  /** Threads take turns, so that memory is always in order. */
  private static Action order(Statement s) {
    s.modifiers(0, "sc", "acq_rel", "cta", "gpu", "gl", "sys").count(0);
    return plain((_, _) -> {});
  }

  private static Action barrier(Statement s) {
    if (s.has("warp")) {
      s.modifiers(0, "warp", "sync").count(1);
      return new Action.Collective(s.register(0), (_, _) -> {});
    }
    if (s.has("sync")) {
      s.modifiers(0, "cta", "sync", "aligned");
      boolean counted = s.operands().size() == 2;
      s.count(counted ? 2 : 1);
      return new Action.Barrier(s.register(0), counted ? s.register(1) : -1, null);
    }
    s.modifiers(1, "cta", "red", "popc", "and", "or", "aligned");
    if (!s.has("red")) {
      throw s.unknown();
    }
    boolean counted = s.operands().size() == 4;
    s.count(counted ? 4 : 3);
    Operand predicate = s.operands().getLast();
    String operation = s.has("popc") ? "popc" : s.has("and") ? "and" : "or";
    return new Action.Barrier(
        s.register(1),
        counted ? s.register(2) : -1,
        predicate instanceof Operand.Not(int register)
            ? new Action.Reduction(operation, s.register(0), register, true)
            : new Action.Reduction(operation, s.register(0), s.register(counted ? 3 : 2), false));
  }
}
