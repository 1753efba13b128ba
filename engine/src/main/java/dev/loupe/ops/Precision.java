package dev.loupe.ops;

/** What the weights are kept as; sums are in 32 bits. */
public enum Precision {
  /** 32 bits; the CPU keeps 16-bit weights that the file has, which is exact. */
  F32,
  /** IEEE 754 binary16. */
  F16,
  /** The upper half of a binary32. */
  BF16,
  /** Signed bytes with a scale for each 64 weights. */
  INT8
}
