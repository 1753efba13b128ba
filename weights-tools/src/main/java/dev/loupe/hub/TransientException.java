package dev.loupe.hub;

import java.io.IOException;
import java.time.Duration;

/** What may go well when it is tried again: a busy server, a broken line. */
final class TransientException extends IOException {
  private static final long serialVersionUID = 1L;

  private final Duration wait;

  /**
   * @param wait how long the server wants to be left alone; zero if it didn't say
   */
  TransientException(String message, Duration wait) {
    super(message);
    this.wait = wait;
  }

  TransientException(String message, Throwable cause) {
    super(message, cause);
    this.wait = Duration.ZERO;
  }

  TransientException(String message) {
    this(message, Duration.ZERO);
  }

  Duration waitWanted() {
    return wait;
  }
}
