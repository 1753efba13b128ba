package dev.loupe.kernels;

import java.io.Serial;

/**
 * The GPU, its driver, or a request to it failed; the message is one sentence for people: what was
 * attempted, with which sizes, and what can be done.
 */
public sealed class GpuException extends RuntimeException permits GpuMemoryException {
  @Serial private static final long serialVersionUID = 1L;

  /** A failure that the caller caused or can mend. */
  public GpuException(String message) {
    super(message);
  }

  /** A failure with a cause outside. */
  public GpuException(String message, Throwable cause) {
    super(message, cause);
  }
}
