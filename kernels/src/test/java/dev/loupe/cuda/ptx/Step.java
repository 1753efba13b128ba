package dev.loupe.cuda.ptx;

import dev.loupe.cuda.ptx.text.Operand;
import org.jspecify.annotations.Nullable;

/** A decoded instruction: what lanes do whose guard is true. */
record Step(Statement source, int guard, boolean negated, Action action) {
  /** What an instruction does. */
  sealed interface Action {
    /** Each lane for itself, or lanes that are known to be together. */
    non-sealed interface Plain extends Action {
      /**
       * Does it for some lanes.
       *
       * @param lanes a bit for each that takes part
       */
      void run(Warp warp, int lanes);
    }

    /** Lanes go on at {@code target}. */
    record Branch(int target) implements Action {}

    /** Lanes end. */
    record Exit() implements Action {}

    /**
     * All lanes of a mask that have not ended come together, and act as one.
     *
     * @param mask register with the mask, or -1: the whole warp, none of it ended
     */
    record Collective(int mask, Plain work) implements Action {}

    /**
     * Threads wait for others of the block.
     *
     * @param id register
     * @param threads register, or -1: all threads of the block
     */
    record Barrier(int id, int threads, @Nullable Reduction reduction) implements Action {}

    /**
     * What a barrier makes of the predicates of its threads.
     *
     * @param operation popc, and, or
     */
    record Reduction(String operation, int result, int predicate, boolean negated) {}
  }

  static Step of(Statement s, Action action) {
    Operand.Scalar guard = s.guard();
    return new Step(s, guard == null ? -1 : guard.register(), s.negated(), action);
  }
}
