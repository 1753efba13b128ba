package dev.loupe.cuda.ptx;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;

/**
 * The asynchronous copies of a thread. Each is done when the thread waits for its group and not
 * before, which the ISA allows: a result that is used without waiting is not there.
 */
final class AsyncCopies {
  private final Deque<List<Runnable>> groups = new ArrayDeque<>(); // oldest first
  private List<Runnable> open = new ArrayList<>();

  void add(Runnable copy) {
    open.add(copy);
  }

  void commit() {
    groups.add(open);
    open = new ArrayList<>();
  }

  /** Ends the oldest groups until {@code pending} are left. */
  void await(long pending) {
    while (groups.size() > pending) {
      groups.remove().forEach(Runnable::run);
    }
  }
}
