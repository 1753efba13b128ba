package dev.loupe.weights.config;

import java.util.List;

/**
 * The nonlinearity of the MLP, under the names that Hugging Face's {@code activation_function}
 * takes. Beware: {@code gelu_new} is the tanh form and {@code gelu} the erf form. Names of one
 * activation are different code for one formula there, down to a few units in the last place.
 *
 * <p>Sources: Hendrycks and Gimpel, "Gaussian Error Linear Units (GELUs)", arXiv 1606.08415; Misra,
 * "Mish", arXiv 1908.08681; and the table ACT2FN of Hugging Face transformers.
 */
public enum Activation {
  /** 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
  GELU_NEW("gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate"),
  /** 0.5 x (1 + erf(x / sqrt(2))). */
  GELU("gelu", "gelu_python"),
  /** {@link #GELU}, cut off below -10 and above 10. */
  GELU_10("gelu_10"),
  /** max(x, 0). */
  RELU("relu"),
  /** max(x, 0)^2. */
  RELU2("relu2"),
  /** min(max(x, 0), 6). */
  RELU6("relu6"),
  /** x where it is positive, else 0.01 x. */
  LEAKY_RELU("leaky_relu"),
  /** 1 / (1 + e^-x). */
  SIGMOID("sigmoid"),
  /** x tanh(ln(1 + e^x)). */
  MISH("mish"),
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
