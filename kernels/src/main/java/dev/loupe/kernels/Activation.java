package dev.loupe.kernels;

/**
 * The nonlinearity that a kernel applies, numbered by ordinal as {@code ActivationKind} in
 * element.cuh.
 */
public enum Activation {
  /** x. */
  NONE,
  /** 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
  GELU_NEW,
  /** 0.5 x (1 + erf(x / sqrt(2))). */
  GELU,
  /** max(x, 0). */
  RELU,
  /** x sigmoid(x). */
  SILU,
  /** tanh(x). */
  TANH,
  /** x sigmoid(1.702 x). */
  QUICK_GELU
}
