package dev.loupe.serve;

import dev.loupe.ActivationCache;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * The runs that can be looked at: those used last, up to so many bytes, and two whatever their
 * size, so that one can be compared with another. Whoever looks has them alone, in the order of
 * arrival; a request whose client has gone leaves the line.
 */
final class Runs implements AutoCloseable {
  private static final int LEAST = 2;

  /** A run, and what was made of it once and is asked for again. */
  record Run(String id, RunSpec spec, ActivationCache cache, Map<String, String> answers) {}

  /** Looks at runs. */
  interface Look<T> {
    T at(Runs runs) throws InterruptedException;
  }

  private final long most;
  private final ReentrantLock turn = new ReentrantLock(true);
  private final LinkedHashMap<String, Run> runs = new LinkedHashMap<>(16, 0.75f, true);
  private boolean closed;

  /**
   * @param most bytes
   */
  Runs(long most) {
    this.most = most;
  }

  /**
   * Waits for its turn, then looks.
   *
   * @throws InterruptedException if the client goes away before
   */
  <T> T look(Look<T> look) throws InterruptedException {
    turn.lockInterruptibly();
    try {
      return look.at(this);
    } finally {
      turn.unlock();
    }
  }

  boolean has(String id) {
    return runs.containsKey(id);
  }

  /**
   * @throws ApiException if it is not here, or no more
   */
  Run run(String id) {
    @Nullable Run run = runs.get(id);
    if (run == null) {
      throw ApiException.invalid(410, "gone", "this run is not kept any more: ask for it again");
    }
    return run;
  }

  /** Keeps a run; others may go for it. */
  void keep(Run run) {
    if (closed) {
      run.cache.close();
      return;
    }
    @Nullable Run before = runs.put(run.id, run);
    if (before != null) {
      before.cache.close();
    }
    long bytes = runs.values().stream().mapToLong(r -> r.cache.bytes()).sum();
    Iterator<Run> oldest = runs.values().iterator();
    while (bytes > most && runs.size() > LEAST) {
      Run gone = oldest.next();
      oldest.remove();
      bytes -= gone.cache.bytes();
      gone.cache.close();
    }
  }

  @Override
  public void close() {
    turn.lock();
    try {
      closed = true;
      runs.values().forEach(run -> run.cache.close());
      runs.clear();
    } finally {
      turn.unlock();
    }
  }
}
