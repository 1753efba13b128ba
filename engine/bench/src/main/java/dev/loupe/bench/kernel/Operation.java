package dev.loupe.bench.kernel;

import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Optional;

/**
 * An operation of GPT-2 that there are several ways to compute. Letters of its shapes: T tokens, H
 * heads, D head size; M rows, K inputs, N outputs; R rows of C.
 */
public enum Operation {
  /** Causal self-attention of T rows over themselves: q, k, v [T, H D] to y [T, H D]. */
  ATTENTION("causal self-attention of a prompt", "T", "H", "D"),
  /** x [M, K] times a weight of K inputs and N outputs, plus bias: [M, N]. */
  LINEAR("a matrix product with bias", "M", "K", "N"),
  /** Layer normalisation of R rows of C. */
  LAYERNORM("layer normalisation of rows", "R", "C"),
  /** Softmax of R rows of C. */
  SOFTMAX("softmax of rows", "R", "C"),
  /** GELU, tanh form, of R rows of C. */
  GELU("GELU (tanh form) of rows", "R", "C"),
  /** All T (T + 1) / 2 attention probabilities of each of H heads, from q, k and log-sum-exp. */
  MAP("attention maps rebuilt from log-sum-exp", "T", "H", "D"),
  /** Attention of one row over T keys. */
  DECODE_ATTENTION("attention of one new token over T keys", "T", "H", "D");

  private final String summary;
  private final List<String> axes;

  Operation(String summary, String... axes) {
    this.summary = summary;
    this.axes = List.of(axes);
  }

  /** What it is, in a few words. */
  public String summary() {
    return summary;
  }

  /** The letters of its shapes, in their order. */
  public List<String> axes() {
    return axes;
  }

  /** As users type it, e.g. {@code decode-attention}. */
  public String label() {
    return name().toLowerCase(Locale.ROOT).replace('_', '-');
  }

  /** The operation that is typed so. */
  public static Optional<Operation> labelled(String label) {
    return Arrays.stream(values()).filter(o -> o.label().equals(label)).findFirst();
  }
}
