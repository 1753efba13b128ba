package dev.loupe.hub;

import java.io.IOException;
import java.time.Duration;

/** How often the same thing may still be tried. */
final class Retries {
  private static final Duration LONGEST_WAIT = Duration.ofMinutes(1);

  private final HubSettings.Patience patience;
  private int failures;

  Retries(HubSettings.Patience patience) {
    this.patience = patience;
  }

  /** Work that may be tried again. */
  interface Attempt<T> {
    T run() throws IOException, InterruptedException;
  }

  static <T> T of(HubSettings.Patience patience, Attempt<T> attempt)
      throws IOException, InterruptedException {
    Retries retries = new Retries(patience);
    while (true) {
      try {
        return attempt.run();
      } catch (TransientException e) {
        retries.pause(e);
      }
    }
  }

  /** Something was gained: as if nothing had failed yet. */
  void forget() {
    failures = 0;
  }

  /**
   * Waits before the next try.
   *
   * @throws IOException if there have been enough
   */
  void pause(TransientException failure) throws IOException, InterruptedException {
    failures++;
    if (failures >= patience.tries()) {
      throw new IOException(
          "%s (tried %d times)".formatted(failure.getMessage(), failures), failure);
    }
    Duration own = patience.pause().multipliedBy(1L << Math.min(failures - 1, 10));
    Duration wanted = failure.waitWanted();
    Duration wait = wanted.compareTo(own) > 0 ? wanted : own;
    Thread.sleep(wait.compareTo(LONGEST_WAIT) > 0 ? LONGEST_WAIT : wait);
  }
}
