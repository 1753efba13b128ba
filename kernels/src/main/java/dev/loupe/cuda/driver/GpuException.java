package dev.loupe.cuda.driver;

import java.io.Serial;

/**
 * The GPU, its driver, or a request to it failed, or the GPU was closed. Arguments that are wrong
 * whatever the machine does are an {@link IllegalArgumentException}. The message is one sentence
 * for people: what was attempted, with which sizes, and what can be done.
 */
public sealed class GpuException extends RuntimeException permits GpuMemoryException {
  @Serial private static final long serialVersionUID = 1L;

  /** A failure that the driver, the card or its memory caused. */
  public GpuException(String message) {
    super(message);
  }

  /** A failure with a cause outside. */
  public GpuException(String message, Throwable cause) {
    super(message, cause);
  }
}
