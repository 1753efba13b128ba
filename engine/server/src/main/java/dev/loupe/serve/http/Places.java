package dev.loupe.serve.http;

import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Who may run: as many requests at a time as a {@link dev.loupe.generate.Scheduler} has slots.
 * Others wait in the order in which they came, up to a bound. A waiting thread that is interrupted
 * leaves the queue.
 */
public final class Places {
  private final int queue;
  private final int slots;
  private final Semaphore turn;
  private final AtomicInteger inside = new AtomicInteger(); // run or wait

  /** A place in the queue, and later the turn to run, until closed. For one thread. */
  public final class Place implements AutoCloseable {
    private boolean runs;
    private boolean left;

    private Place() {}

    /**
     * Waits for its turn.
     *
     * @param deadline of System.nanoTime
     * @throws ApiException if it does not come in time
     */
    public void await(long deadline) throws InterruptedException {
      runs = turn.tryAcquire(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
      if (!runs) {
        throw tooLate();
      }
    }

    @Override
    public void close() {
      if (!left) {
        left = true;
        inside.decrementAndGet();
        if (runs) {
          turn.release();
        }
      }
    }
  }

  /**
   * @param queue how many may wait
   * @param slots how many may run
   */
  public Places(int queue, int slots) {
    this.queue = queue;
    this.slots = slots;
    turn = new Semaphore(slots, true);
  }

  /**
   * Enters the queue.
   *
   * @throws ApiException if too many wait already
   */
  public Place enter() {
    if (inside.incrementAndGet() > queue + slots) {
      inside.decrementAndGet();
      throw ApiException.queueFull(
          "as many requests as may (%d) wait already: try again".formatted(queue));
    }
    return new Place();
  }

  public static ApiException tooLate() {
    return ApiException.failed(
        503, "timeout", "the request waited for its turn until its time was up");
  }

  public int running() {
    return slots - turn.availablePermits();
  }

  public int waiting() {
    return Math.max(0, inside.get() - running());
  }
}
