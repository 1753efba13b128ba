package dev.loupe;

/** What multiplies the many rows of a prompt on a GPU. */
public enum Gemm {
  /** cuBLAS for f16 and bf16 where it is installed and works, Loupe's own kernels else. */
  AUTO,
  /** Loupe's own kernels. */
  OWN,
  /** cuBLAS; opening fails where it is not installed. */
  CUBLAS
}
