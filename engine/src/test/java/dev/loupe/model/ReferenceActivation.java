package dev.loupe.model;

import dev.loupe.weights.config.Activation;

/** The activations from their definitions, in double precision. */
public final class ReferenceActivation {
  private ReferenceActivation() {}

  public static double of(Activation f, double x) {
    return switch (f) {
      case GELU_NEW ->
          0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * Math.pow(x, 3))));
      case GELU -> 0.5 * x * (1 + erf(x / Math.sqrt(2)));
      case GELU_10 -> Math.clamp(of(Activation.GELU, x), -10, 10);
      case RELU -> x > 0 ? x : 0;
      case RELU2 -> x > 0 ? x * x : 0;
      case RELU6 -> Math.clamp(x, 0, 6);
      case LEAKY_RELU -> x > 0 ? x : x / 100;
      case SIGMOID -> 1 / (1 + Math.exp(-x));
      case MISH -> x * Math.tanh(Math.log1p(Math.exp(x)));
      case SILU -> x / (1 + Math.exp(-x));
      case TANH -> Math.tanh(x);
      case QUICK_GELU -> x / (1 + Math.exp(-1.702 * x));
    };
  }

  /** By Simpson's rule on the defining integral: slow and plain. */
  private static double erf(double x) {
    int n = 2000;
    double end = Math.min(Math.abs(x), 7);
    double h = end / n;
    double sum = 1 + Math.exp(-end * end);
    for (int i = 1; i < n; i++) {
      sum += (i % 2 == 1 ? 4 : 2) * Math.exp(-(i * h) * (i * h));
    }
    return Math.signum(x) * 2 / Math.sqrt(Math.PI) * sum * h / 3;
  }
}
