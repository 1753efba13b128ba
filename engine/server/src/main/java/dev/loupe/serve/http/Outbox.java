package dev.loupe.serve.http;

import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/**
 * Bytes of large answers that wait for their readers, bounded for all clients together. Whoever is
 * to make a large answer asks for its bytes first, in the order of arrival; so clients that do not
 * read keep others waiting for a time, and take no memory beyond the bound.
 */
public final class Outbox {
  private static final int UNIT = 1024; // what a semaphore counts

  private final int most; // units
  private final Semaphore free;

  /** Bytes of one answer, until closed. For one thread. */
  final class Share implements AutoCloseable {
    private int units;

    private Share(int units) {
      this.units = units;
    }

    /** Gives back what turned out to be too much. */
    void shrink(long bytes) {
      int needed = Math.min(units, unitsOf(bytes));
      free.release(units - needed);
      units = needed;
    }

    @Override
    public void close() {
      shrink(0);
    }
  }

  /**
   * @param bytes most at a time; an answer that has more goes out when no other does
   */
  public Outbox(long bytes) {
    most = Math.toIntExact(Math.ceilDiv(bytes, UNIT));
    free = new Semaphore(most, true);
  }

  private int unitsOf(long bytes) {
    return (int) Math.min(most, Math.ceilDiv(bytes, UNIT));
  }

  /**
   * Waits for room.
   *
   * @param deadline of System.nanoTime
   * @throws InterruptedException if the client goes away before
   * @throws ApiException if there is none in time
   */
  Share share(long bytes, long deadline) throws InterruptedException {
    int units = unitsOf(bytes);
    if (!free.tryAcquire(units, deadline - System.nanoTime(), TimeUnit.NANOSECONDS)) {
      throw ApiException.failed(
          503, "timeout", "other clients did not take their answers in time: try again");
    }
    return new Share(units);
  }

  /** Whether somebody waits for room. */
  boolean isShort() {
    return free.hasQueuedThreads();
  }

  /** Bytes that are given away. */
  long taken() {
    return (long) (most - free.availablePermits()) * UNIT;
  }
}
