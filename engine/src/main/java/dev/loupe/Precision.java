package dev.loupe;

/** What the weights are computed with. */
public enum Precision {
  /** 32 bits; on the CPU, weights stay in the type that the file has. */
  F32,
  /** IEEE 754 binary16, sums in 32 bits. */
  F16,
  /** The upper half of a binary32, sums in 32 bits. */
  BF16,
  /** Signed bytes with a scale for each 64 weights; activations in 32 bits or in binary16. */
  INT8
}
