package dev.loupe.cuda.driver;

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

  /** Its number in the kernels' parameters, ElementCode in element.cuh; ids have none. */
  public int code() {
    return switch (this) {
      case F32 -> 0;
      case F16 -> 1;
      case BF16 -> 2;
      case I8 -> 3;
      case I32 -> throw new IllegalArgumentException("no kernel computes with " + suffix());
    };
  }

  /** True for the elements that hold real numbers. */
  public boolean isFloat() {
    return this == F32 || this == F16 || this == BF16;
  }

  /** Bits of the bf16 nearest to {@code value}, ties to even; a NaN stays one. */
  public static short toBf16(float value) {
    int bits = Float.floatToRawIntBits(value);
    if (Float.isNaN(value)) {
      return (short) ((bits >>> 16) | 0x40); // quiet, or its fraction might be cut to an infinity's
    }
    return (short) ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16);
  }

  /** The value of a bf16. */
  public static float fromBf16(short bits) {
    return Float.intBitsToFloat(bits << 16);
  }
}
