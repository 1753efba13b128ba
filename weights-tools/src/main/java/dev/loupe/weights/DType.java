package dev.loupe.weights;

/** The element types in which checkpoints store tensors; all little-endian. */
public enum DType {
  /** IEEE 754 binary64. */
  F64(8),
  /** IEEE 754 binary32. */
  F32(4),
  /** IEEE 754 binary16. */
  F16(2),
  /** The upper half of a binary32. */
  BF16(2);

  private final int bytes;

  DType(int bytes) {
    this.bytes = bytes;
  }

  /** Bytes per element. */
  public int bytes() {
    return bytes;
  }
}
