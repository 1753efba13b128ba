package dev.loupe.weights.io;

import java.io.IOException;

/**
 * A checkpoint that can't be used; the message is one sentence that names the file and the fault.
 */
public final class CheckpointException extends IOException {
  private static final long serialVersionUID = 1L;

  public CheckpointException(String message) {
    super(message);
  }

  public CheckpointException(String message, Throwable cause) {
    super(message, cause);
  }
}
