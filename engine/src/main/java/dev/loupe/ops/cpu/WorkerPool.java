package dev.loupe.ops.cpu;

import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * A fixed set of threads that share the iterations of one loop at a time. The caller works too, as
 * worker 0; the others spin for a moment between loops, since the next usually follows at once, and
 * then sleep. Which worker takes which iteration is left to chance, so an iteration's result must
 * not depend on it.
 */
final class WorkerPool implements AutoCloseable {
  /** One iteration, on one worker. */
  interface Body {
    void run(int iteration, int worker);
  }

  private static final int SPINS = 5_000;

  private final Thread[] helpers;
  private final AtomicInteger next = new AtomicInteger();
  private final AtomicInteger working = new AtomicInteger();
  private final AtomicInteger asleep = new AtomicInteger();
  private int iterations;
  private @Nullable Body body;
  private @Nullable Thread caller;
  private volatile @Nullable Throwable failure;
  private volatile int round; // a change of it starts the helpers and publishes body and iterations
  private volatile boolean closed;

  /**
   * @param workers threads that work, the caller included; at least 1
   */
  WorkerPool(int workers) {
    helpers = new Thread[workers - 1];
    for (int i = 0; i < helpers.length; i++) {
      int worker = i + 1;
      helpers[i] =
          Thread.ofPlatform().daemon().name("loupe-cpu-" + worker).unstarted(() -> help(worker));
    }
    for (Thread helper : helpers) {
      helper.start();
    }
  }

  int workers() {
    return helpers.length + 1;
  }

  /**
   * Runs {@code body} for 0 .. iterations - 1 and returns when all are done. Callers take turns.
   *
   * @throws RuntimeException or Error what an iteration threw; the other iterations may be left
   *     undone
   */
  synchronized void run(int iterations, Body body) {
    if (closed) {
      throw new IllegalStateException("this backend is closed");
    }
    if (helpers.length == 0 || iterations == 1) {
      for (int i = 0; i < iterations; i++) {
        body.run(i, 0);
      }
      return;
    }
    this.body = body;
    this.iterations = iterations;
    caller = Thread.currentThread();
    next.set(0);
    working.set(helpers.length);
    round++; // only here, and run is synchronized
    if (asleep.get() > 0) { // a helper that falls asleep now sees the new round first
      for (Thread helper : helpers) {
        LockSupport.unpark(helper);
      }
    }
    work(body, iterations, 0);
    for (int spins = 0; working.get() > 0; spins++) {
      if (spins < SPINS) {
        Thread.onSpinWait();
      } else {
        LockSupport.park(this);
      }
    }
    this.body = null;
    Throwable thrown = failure;
    if (thrown != null) {
      failure = null;
      switch (thrown) {
        case RuntimeException e -> throw e;
        case Error e -> throw e;
        default -> throw new IllegalStateException(thrown);
      }
    }
  }

  private void help(int worker) {
    int seen = 0;
    while (true) {
      for (int spins = 0; round == seen && !closed; spins++) {
        if (spins < SPINS) {
          Thread.onSpinWait();
        } else {
          asleep.incrementAndGet();
          if (round == seen && !closed) {
            LockSupport.park(this);
          }
          asleep.decrementAndGet();
        }
      }
      if (closed) {
        return;
      }
      seen = round;
      try {
        Body current = body;
        if (current != null) {
          work(current, iterations, worker);
        }
      } catch (InternalError e) { // of a mapped file that was cut: Java throws it a moment late
        failure = e;
      } finally {
        if (working.decrementAndGet() == 0) {
          LockSupport.unpark(caller);
        }
      }
    }
  }

  private void work(Body body, int iterations, int worker) {
    try {
      for (int i = next.getAndIncrement(); i < iterations; i = next.getAndIncrement()) {
        body.run(i, worker);
      }
    } catch (Throwable e) { // handed to the caller of run
      failure = e;
      next.set(iterations);
    }
  }

  @Override
  public synchronized void close() {
    closed = true;
    for (Thread helper : helpers) {
      LockSupport.unpark(helper);
    }
  }
}
