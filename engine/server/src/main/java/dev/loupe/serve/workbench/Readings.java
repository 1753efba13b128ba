package dev.loupe.serve.workbench;

import dev.loupe.generate.GenerateRequest;
import dev.loupe.serve.http.ApiException;
import dev.loupe.serve.http.Exchange;
import dev.loupe.serve.http.Outbox;
import dev.loupe.serve.http.Places;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Whose turn it is to read a text anew. Reading takes as long as a run, so it waits among the runs
 * and takes a place as they do. Only one reads at a time, so that the other places are left for
 * runs.
 */
final class Readings {
  /** Makes an answer. */
  interface Making<T> {
    T make() throws InterruptedException;
  }

  private final Places places;
  private final Duration timeout;
  private final ReentrantLock reading = new ReentrantLock(true);

  /**
   * @param timeout of a request, waiting included
   */
  Readings(Places places, Duration timeout) {
    this.places = places;
    this.timeout = timeout;
  }

  /** Until when a request that comes now may wait; of System.nanoTime. */
  long deadline() {
    return System.nanoTime() + timeout.toNanos();
  }

  /**
   * Makes an answer, in its turn among runs.
   *
   * @param bytes that the answer will have, if they may be many; room for them is taken in {@code
   *     outbox}
   * @throws ApiException if there are too many that wait, or no turn in time
   */
  <T> T amongRuns(Exchange exchange, Outbox outbox, long bytes, long deadline, Making<T> making)
      throws InterruptedException {
    try (Places.Place place = places.enter()) {
      exchange.reserve(outbox, bytes, deadline);
      return beside(
          deadline,
          () -> {
            place.await(deadline);
            return making.make();
          });
    }
  }

  /**
   * Makes an answer beside runs, when no other text is read.
   *
   * @throws ApiException if it has no turn in time
   */
  <T> T beside(long deadline, Making<T> making) throws InterruptedException {
    if (!reading.tryLock(deadline - System.nanoTime(), TimeUnit.NANOSECONDS)) {
      throw Places.tooLate();
    }
    try {
      return making.make();
    } finally {
      reading.unlock();
    }
  }

  /** Ends a run when nobody waits for its answer any more. */
  static GenerateRequest.Listener wanted(Exchange exchange) {
    return new GenerateRequest.Listener() {
      @Override
      public boolean reading(int layersDone, int layers) {
        return !exchange.isCancelled();
      }
    };
  }
}
