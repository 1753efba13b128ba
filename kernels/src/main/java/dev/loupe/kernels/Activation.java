package dev.loupe.kernels;

/** The nonlinearity that a kernel applies. */
public enum Activation {
  /** x. */
  NONE(0),
  /** 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
  GELU_NEW(1),
  /** 0.5 x (1 + erf(x / sqrt(2))). */
  GELU(2),
  /** max(x, 0). */
  RELU(3),
  /** x sigmoid(x). */
  SILU(4),
  /** tanh(x). */
  TANH(5),
  /** x sigmoid(1.702 x). */
  QUICK_GELU(6);

  private final int code;

  Activation(int code) {
    this.code = code;
  }

  /** Its number in {@code ActivationKind} of element.cuh, for a kernel's parameter. */
  int code() {
    return code;
  }
}
