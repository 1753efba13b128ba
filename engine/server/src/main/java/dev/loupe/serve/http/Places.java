package dev.loupe.serve.http;

import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Who may run: as many requests at a time as a {@link dev.loupe.generate.Scheduler} has slots.
 * Others wait in the order in which they came, up to a bound. A waiting thread that is interrupted
 * leaves the queue. Long texts are tokenized by few at a time.
 */
public final class Places {
  /** Bytes of a request whose text takes a processor for tens of milliseconds. */
  private static final int LONG = 16 << 10;

  private final int queue;
  private final int slots;
  private final Semaphore turn;
  private final Semaphore longTexts =
      new Semaphore(Math.max(1, Runtime.getRuntime().availableProcessors() / 2), true);
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

  /** The turn of a request to have its text tokenized, until closed. */
  public final class Text implements AutoCloseable {
    private final boolean isLong;

    private Text(boolean isLong) {
      this.isLong = isLong;
    }

    @Override
    public void close() {
      if (isLong) {
        longTexts.release();
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

  /**
   * Waits until a request's text may be tokenized: at once, but for a long one when no more than
   * half of the processors do that. Ask before {@link Place#await}, so that those who wait here
   * leave the turns to run to others.
   *
   * @param bytes of the request
   * @param deadline of System.nanoTime
   * @throws ApiException if its turn does not come in time
   */
  public Text text(int bytes, long deadline) throws InterruptedException {
    boolean isLong = bytes > LONG;
    if (isLong && !longTexts.tryAcquire(deadline - System.nanoTime(), TimeUnit.NANOSECONDS)) {
      throw tooLate();
    }
    return new Text(isLong);
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
