package dev.loupe.corpus;

import java.io.IOException;

/** An input or a result of a corpus job that can't be used; the message says which and why. */
public final class CorpusException extends IOException {
  private static final long serialVersionUID = 1L;

  public CorpusException(String message) {
    super(message);
  }

  public CorpusException(String message, Throwable cause) {
    super(message, cause);
  }
}
