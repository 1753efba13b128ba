package dev.loupe.cuda.driver;

import java.util.Arrays;

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

  /** A list that begins with so many pointers. */
  public static Parameter[] pointers(int count, Parameter... others) {
    Parameter[] all = new Parameter[count + others.length];
    Arrays.fill(all, 0, count, POINTER);
    System.arraycopy(others, 0, all, count, others.length);
    return all;
  }

  /** Size and alignment in bytes. */
  public int bytes() {
    return bytes;
  }
}
