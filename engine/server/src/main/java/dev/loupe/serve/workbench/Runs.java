package dev.loupe.serve.workbench;

import dev.loupe.interpret.ActivationCache;
import dev.loupe.serve.http.ApiException;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
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
  static final class Run {
    private final String id;
    private final RunSpec spec;
    private final ActivationCache cache;
    private final Map<String, String> answers = new HashMap<>(); // for whoever looks

    Run(String id, RunSpec spec, ActivationCache cache) {
      this.id = id;
      this.spec = spec;
      this.cache = cache;
    }

    String id() {
      return id;
    }

    RunSpec spec() {
      return spec;
    }

    ActivationCache cache() {
      return cache;
    }

    /** What it takes to keep it. */
    private long bytes() {
      long bytes = cache.bytes();
      for (Map.Entry<String, String> answer : answers.entrySet()) {
        bytes += 2L * (answer.getKey().length() + answer.getValue().length());
      }
      return bytes;
    }
  }

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

  /** What was made of a run before, if that is kept. */
  Optional<String> answer(Run run, String name) {
    return Optional.ofNullable(run.answers.get(name));
  }

  /** Keeps what was made of a run, if that is still here; others may go for it. */
  void keep(Run run, String name, String answer) {
    if (runs.get(run.id) == run) {
      run.answers.put(name, answer);
      dropOldest();
    }
  }

  /** The name of what is made of a run and another; it goes when either goes. */
  static String with(Run other) {
    return "with " + other.id;
  }

  /** Bytes of all that is kept. */
  long bytes() {
    return runs.values().stream().mapToLong(Run::bytes).sum();
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
    dropOldest();
  }

  private void dropOldest() {
    while (runs.size() > LEAST && bytes() > most) {
      Run gone = runs.values().iterator().next();
      runs.remove(gone.id);
      gone.cache.close();
      runs.values().forEach(run -> run.answers.remove(with(gone)));
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
