package dev.loupe.weights;

import java.util.List;

/**
 * The nonlinearity of the MLP, under the names that Hugging Face's {@code activation_function}
 * takes. Beware: {@code gelu_new} is the tanh form and {@code gelu} the erf form.
 *
 * <p>Source: Hendrycks and Gimpel, "Gaussian Error Linear Units (GELUs)", arXiv 1606.08415, and the
 * table ACT2FN of Hugging Face transformers.
 */
public enum Activation {
  /** 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
  GELU_NEW("gelu_new", "gelu_pytorch_tanh"),
  /** 0.5 x (1 + erf(x / sqrt(2))). */
  GELU("gelu"),
  /** max(x, 0). */
  RELU("relu"),
  /** x sigmoid(x). */
  SILU("silu", "swish"),
  /** tanh(x). */
  TANH("tanh"),
  /** x sigmoid(1.702 x). */
  QUICK_GELU("quick_gelu");

  private final List<String> names;

  Activation(String... names) {
    this.names = List.of(names);
  }

  /** The name in a config.json, the first where there are several. */
  public String configName() {
    return names.getFirst();
  }

  /**
   * The activation that a config.json calls {@code name}.
   *
   * @throws IllegalArgumentException if no GPT-2 activation has that name; the message lists those
   *     that have
   */
  public static Activation named(String name) {
    StringBuilder known = new StringBuilder();
    for (Activation activation : values()) {
      for (String candidate : activation.names) {
        if (candidate.equals(name)) {
          return activation;
        }
        known.append(known.isEmpty() ? "" : ", ").append(candidate);
      }
    }
    throw new IllegalArgumentException(
        "unknown activation_function \"" + name + "\"; known are " + known);
  }
}
