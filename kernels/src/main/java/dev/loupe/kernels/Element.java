package dev.loupe.kernels;

import java.util.Locale;

/** How one value lies in device memory. Sums are always taken in f32, whatever is stored. */
public enum Element {
  /** IEEE 754 binary32. */
  F32(4),
  /** IEEE 754 binary16: 5 bits of exponent, 10 of fraction, up to 65504. */
  F16(2),
  /** The upper half of a binary32: 8 bits of exponent, 7 of fraction. */
  BF16(2),
  /** Signed byte; a quantised weight, whose scale is kept elsewhere. */
  I8(1),
  /** Signed 32-bit integer: token ids, segments. */
  I32(4);

  private final int bytes;

  Element(int bytes) {
    this.bytes = bytes;
  }

  /** Size of one value in bytes. */
  public int bytes() {
    return bytes;
  }

  /** The ending of the names of kernels for this element, e.g. {@code f32}. */
  public String suffix() {
    return name().toLowerCase(Locale.ROOT);
  }
}
