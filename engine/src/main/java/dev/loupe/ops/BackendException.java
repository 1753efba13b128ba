package dev.loupe.ops;

/** The backend that was asked for can't run here; the message says what is missing. */
public final class BackendException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  public BackendException(String message) {
    super(message);
  }
}
