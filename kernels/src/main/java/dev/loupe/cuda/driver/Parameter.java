package dev.loupe.cuda.driver;

/** What a kernel expects at one place of its parameter list. */
public enum Parameter {
  /** Address of device memory; set by a buffer. */
  POINTER(8),
  /** {@code int}. */
  INT(4),
  /** {@code long long}. */
  LONG(8),
  /** {@code float}. */
  FLOAT(4);

  private final int bytes;

  Parameter(int bytes) {
    this.bytes = bytes;
  }

  /** Size and alignment in bytes. */
  public int bytes() {
    return bytes;
  }
}
