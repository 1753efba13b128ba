package dev.loupe.cuda.driver;

import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * The platform thread that owns a CUDA context; others hand it one task at a time and wait.
 *
 * <p>A hand-over allocates nothing: one slot, two parks. Both sides spin for a moment before they
 * park, as most tasks put work on a stream and return at once.
 */
public final class GpuThread {
  private static final int SPINS = 2_000;

  private final Thread thread =
      Thread.ofPlatform().name("loupe-gpu").daemon().unstarted(this::loop);
  private final ReentrantLock turn = new ReentrantLock();
  private volatile @Nullable Runnable task;
  private volatile @Nullable Thread caller;
  private @Nullable Throwable failure; // published by the write that clears task
  private volatile boolean stopped;

  /** Starts the thread. */
  public GpuThread() {
    thread.start();
  }

  /** Runs {@code work} on this thread and returns when it is done; throws what it threw. */
  public void run(Runnable work) {
    if (Thread.currentThread() == thread) {
      work.run();
      return;
    }
    turn.lock();
    try {
      if (stopped) {
        throw new GpuException("the GPU was closed");
      }
      caller = Thread.currentThread();
      task = work;
      LockSupport.unpark(thread);
      await();
      Throwable thrown = failure;
      failure = null;
      if (thrown != null) {
        throw rethrow(thrown);
      }
    } finally {
      turn.unlock();
    }
  }

  /** Ends the thread once its task, if it has one, is done. */
  public void stop() {
    stopped = true;
    LockSupport.unpark(thread);
  }

  /** An interrupt does not end the wait: the task may be using the caller's memory. */
  private void await() {
    boolean interrupted = false;
    for (int spins = 0; task != null; spins++) {
      if (spins < SPINS) {
        Thread.onSpinWait();
      } else {
        LockSupport.park(this);
        interrupted |= Thread.interrupted();
      }
    }
    caller = null;
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  private void loop() {
    for (int spins = 0; ; spins++) {
      Runnable work = task;
      if (work != null) {
        try {
          work.run();
        } catch (Throwable e) { // the caller's to handle
          failure = e;
        }
        Thread waiting = caller;
        task = null;
        LockSupport.unpark(waiting);
        spins = 0;
      } else if (stopped) {
        return;
      } else if (spins < SPINS) {
        Thread.onSpinWait();
      } else {
        LockSupport.park(this);
      }
    }
  }

  private static RuntimeException rethrow(Throwable thrown) {
    if (thrown instanceof Error e) {
      throw e;
    }
    return (RuntimeException) thrown; // a Runnable throws nothing else
  }
}
