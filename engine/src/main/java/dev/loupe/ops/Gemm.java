package dev.loupe.ops;

/** What multiplies the many rows of a prompt on a GPU. */
public enum Gemm {
  /** For each number of rows what was measured to be the fastest, of those that are right. */
  AUTO,
  /** Loupe's own kernels. */
  OWN,
  /** cuBLAS; opening fails where it is not installed. */
  CUBLAS
}
