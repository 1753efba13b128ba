package dev.loupe;

/** What a model runs on. */
public enum Backend {
  /** A GPU where one can be used, the CPU otherwise. */
  AUTO,
  /** The CPU, in pure Java. */
  CPU,
  /** An NVIDIA GPU; opening fails where there is none. */
  CUDA
}
