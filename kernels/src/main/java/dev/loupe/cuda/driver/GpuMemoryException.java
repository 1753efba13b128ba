package dev.loupe.cuda.driver;

import java.io.Serial;

/** The GPU has not the memory that was asked for, or the driver not the pinned memory. */
public final class GpuMemoryException extends GpuException {
  @Serial private static final long serialVersionUID = 1L;

  /** What was asked for, and what is free. */
  public GpuMemoryException(String message) {
    super(message);
  }
}
