package dev.loupe.generate;

import dev.loupe.generate.Passes.Piece;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Ops;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * Which runs take part in which pass, and which of their sequences have a slot in the KV cache. The
 * thread of one of the runs carries out a pass for all (flat combining, see {@link Scheduler}).
 */
final class Turns {
  /** Nanoseconds for which everybody is waited for, however short a pass is. */
  private static final long LEAST_PATIENCE = 1_000_000;

  private final Ops ops;
  private final Passes passes;
  private final boolean shared;

  private final ReentrantLock lock = new ReentrantLock();
  // all below is under the lock
  private final List<Run> runs = new ArrayList<>(); // in order of arrival
  private final @Nullable Sequence[] slots;
  private final @Nullable Run[] contents; // whose prompt a slot may still hold
  private final List<Sequence> leaving = new ArrayList<>(); // amid a pass
  private boolean passing;
  private long patience; // until when busy ones are waited for

  /**
   * @param shared whether there are several runs: their listeners are not called in a pass then
   */
  Turns(Ops ops, Passes passes, int slots, boolean shared) {
    this.ops = ops;
    this.passes = passes;
    this.shared = shared;
    this.slots = new Sequence[slots];
    contents = new Run[slots];
  }

  int slots() {
    return slots.length;
  }

  void enter(Run run) {
    lock.lock();
    try {
      run.turn = lock.newCondition();
      runs.add(run);
    } finally {
      lock.unlock();
    }
  }

  void leave(Run run) {
    lock.lock();
    try {
      runs.remove(run);
      run.busy = false;
      run.ready = false;
      run.sequences.forEach(this::free);
      arrange();
      wakeOne();
    } finally {
      lock.unlock();
    }
  }

  /** Returns when the run was part of a pass, or its thread is interrupted. */
  void takePart(Run run) {
    lock.lock();
    try {
      run.busy = false;
      run.noteOver();
      run.sequences.stream().filter(sequence -> sequence.over).forEach(this::free);
      run.passed = false;
      run.ready = true;
      arrange();
      while (!run.passed) {
        if (run.inPass) {
          run.turn().awaitUninterruptibly();
          continue;
        }
        wakeOne();
        long wait = timeToWait(run);
        if (wait <= 0) {
          lead(run);
          continue;
        }
        try {
          long _ = run.turn().awaitNanos(wait);
        } catch (InterruptedException e) {
          Thread.currentThread().interrupt();
          if (!run.inPass && !run.passed) {
            run.ready = false;
            return;
          }
        }
      }
      run.rethrow();
    } finally {
      lock.unlock();
    }
  }

  private boolean anyBusy() {
    return runs.stream().anyMatch(run -> run.busy);
  }

  /** Nanoseconds until a run may lead a pass, if nothing happens before. */
  private long timeToWait(Run run) {
    if (passing || !run.hasSlot()) {
      return Long.MAX_VALUE;
    }
    return anyBusy() ? patience - System.nanoTime() : 0;
  }

  /** If nobody is waited for, one of those who are ready has to go on. */
  private void wakeOne() {
    if (!passing && !anyBusy()) {
      runs.stream()
          .filter(run -> run.ready && run.hasSlot())
          .findFirst()
          .ifPresent(run -> run.turn().signal());
    }
  }

  private void free(Sequence sequence) {
    if (passing) {
      leaving.add(sequence); // the leader may look at it
      return;
    }
    if (sequence.slot >= 0) {
      sequence.writing = null;
      if (sequence.hasSlid()) { // its cache does not begin with the prompt
        contents[sequence.slot] = null;
      }
      slots[sequence.slot] = null;
      sequence.slot = -1;
    }
  }

  /**
   * Gives slots away, unless a pass is under way: one to each run, in order of arrival, then those
   * that are left to runs that have the fewest.
   */
  private void arrange() {
    if (passing) {
      return;
    }
    for (Run run : runs) {
      if (run.slots() == 0 && run.waiting() != null) {
        int slot = freeSlot();
        if (slot < 0) {
          slot = takenSlot();
        }
        if (slot < 0) {
          break;
        }
        give(slot, run, passes.kv());
      }
    }
    for (int slot = freeSlot(); slot >= 0; slot = freeSlot()) {
      Optional<Run> next =
          runs.stream()
              .filter(run -> run.waiting() != null && holderOfPrompt(run, passes.kv()) != null)
              .min(Comparator.comparingInt(Run::slots));
      if (next.isEmpty()) {
        return;
      }
      give(slot, next.get(), passes.kv());
    }
  }

  private int freeSlot() {
    for (int slot = 0; slot < slots.length; slot++) {
      if (slots[slot] == null) {
        return slot;
      }
    }
    return -1;
  }

  /**
   * The slot of the shortest text of a run that has several, which loses it; -1 if none has. Where
   * bits depend on the pass nobody loses one: a text that is read anew could go on differently.
   */
  private int takenSlot() {
    if (!ops.mixesRuns()) {
      return -1;
    }
    KvCache kv = passes.kv();
    Optional<Sequence> loser =
        Arrays.stream(slots)
            .filter(Objects::nonNull)
            .filter(sequence -> sequence.run.slots() > 1)
            .min(Comparator.comparingInt(sequence -> kv.length(sequence.slot)));
    if (loser.isEmpty()) {
      return -1;
    }
    int slot = loser.get().slot;
    free(loser.get());
    return slot;
  }

  /** Rows of a prompt from which another text can start. */
  private int enough(Run run) {
    return ops.mixesRuns() ? run.promptRows() - 1 : run.promptRows();
  }

  /** A sequence of the run whose slot holds {@link #enough} of the prompt. */
  private @Nullable Sequence holderOfPrompt(Run run, KvCache kv) {
    for (Sequence sequence : run.sequences) {
      boolean holds =
          sequence.slot >= 0 && !sequence.hasSlid() && kv.length(sequence.slot) >= enough(run);
      if (holds) {
        return sequence;
      }
    }
    return null;
  }

  /**
   * The text starts from what is known of its prompt. Right after the pass that read the prompt,
   * its logits are known too. Later, the last token is read again, or the run has kept them.
   */
  private void give(int slot, Run run, KvCache kv) {
    Sequence sequence = Objects.requireNonNull(run.waiting());
    int known = enough(run);
    Sequence holder = holderOfPrompt(run, kv);
    if (sequence.hasSlid()) {
      known = 0;
    } else if (holder != null
        && holder.due
        && run.inPass
        && holder.sample.length() == run.prompt.length) {
      kv.copySequence(ops, holder.slot, slot);
      known = run.promptRows();
      sequence.logits = Objects.requireNonNull(holder.logits).clone();
      sequence.due = true;
    } else if (contents[slot] != run || kv.length(slot) < known) {
      if (holder == null) {
        known = 0;
      } else {
        kv.copySequence(ops, holder.slot, slot);
      }
    }
    sequence.starts = known == run.promptRows() && !sequence.due;
    kv.truncate(slot, known);
    contents[slot] = run;
    slots[slot] = sequence;
    sequence.slot = slot;
    run.turn().signal();
  }

  /** Carries out a pass for all who are ready, on the thread of one of them. */
  private void lead(Run leader) {
    List<Piece> pieces = passes.plan(runs.stream().filter(run -> run.ready).toList());
    if (pieces.isEmpty()) {
      throw new IllegalStateException("a pass without a row to read");
    }
    Set<Run> part = new LinkedHashSet<>();
    pieces.forEach(piece -> part.add(piece.sequence().run));
    for (Run run : runs) {
      run.busy = false;
    }
    for (Run run : part) {
      run.inPass = true;
      run.ready = false;
    }
    passing = true;
    lock.unlock();
    long start = System.nanoTime();
    Throwable failure = null;
    try {
      passes.run(pieces, shared ? null : leader);
    } catch (Throwable e) { // each of those who took part throws it
      failure = e;
    } finally {
      lock.lock();
    }
    passing = false;
    leaving.forEach(this::free);
    leaving.clear();
    long end = System.nanoTime();
    patience = end + Math.max(LEAST_PATIENCE, end - start);
    arrange(); // while those who took part still wait: their sequences are nobody else's
    for (Run run : part) {
      run.busy = true;
      run.inPass = false;
      run.passed = true;
      run.failure = failure == null ? run.failure : failure;
      run.turn().signal();
    }
    for (Run run : runs) {
      if (run.ready) {
        run.turn().signal(); // they wait for the others from now on
      }
    }
  }
}
