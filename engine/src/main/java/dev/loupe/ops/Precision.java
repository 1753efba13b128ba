package dev.loupe.ops;

/** What the weights are kept as; sums are in 32 bits. */
public enum Precision {
  /** 32 bits; the CPU keeps 16-bit weights that the file has, which is exact. */
  F32(4),
  /** IEEE 754 binary16. */
  F16(2),
  /** The upper half of a binary32. */
  BF16(2),
  /** Signed bytes with a scale for each 64 inputs of an output: within half a step. */
  INT8(1);

  private final int bytes;

  Precision(int bytes) {
    this.bytes = bytes;
  }

  /** Bytes of a weight, without the scales. */
  public int bytes() {
    return bytes;
  }
}
