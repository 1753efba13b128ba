package dev.loupe.cuda.kernels;

/** The nonlinearity that a kernel applies. */
public enum KernelActivation {
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

  KernelActivation(int code) {
    this.code = code;
  }

  /** Its number in {@code ActivationKind} of element.cuh, for a kernel's parameter. */
  int code() {
    return code;
  }

  /** Its value at {@code x}, in double precision: what kernels are held to. */
  public double of(double x) {
    return switch (this) {
      case NONE -> x;
      case GELU_NEW ->
          0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x)));
      case GELU -> 0.5 * x * erfc(-x / Math.sqrt(2));
      case RELU -> Math.max(x, 0);
      case SILU -> x / (1 + Math.exp(-x));
      case TANH -> Math.tanh(x);
      case QUICK_GELU -> x / (1 + Math.exp(-1.702 * x));
    };
  }

  /** By its Taylor series near 0, by its continued fraction further out: good to 1e-12. */
  private static double erfc(double x) {
    if (x < 0) {
      return 2 - erfc(-x);
    }
    if (x > 2.5) {
      double fraction = 0;
      for (int n = 80; n > 0; n--) {
        fraction = n / 2.0 / (x + fraction);
      }
      return Math.exp(-x * x) / (Math.sqrt(Math.PI) * (x + fraction));
    }
    double term = x;
    double sum = x;
    for (int n = 1; n < 60; n++) {
      term *= -x * x / n;
      sum += term / (2 * n + 1);
    }
    return 1 - sum * 2 / Math.sqrt(Math.PI);
  }
}
