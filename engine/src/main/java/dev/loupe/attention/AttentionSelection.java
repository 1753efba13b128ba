package dev.loupe.attention;

import dev.loupe.weights.Gpt2Config;
import java.util.Arrays;

/**
 * Which attention to keep: the chosen heads of the chosen layers.
 *
 * <p>"All" stays all for any model; named layers and heads are checked against the model when a run
 * begins.
 */
public final class AttentionSelection {
  private static final int[] ALL = {};

  private final int[] layers;
  private final int[] heads;
  private final boolean scores;

  private AttentionSelection(int[] layers, int[] heads, boolean scores) {
    this.layers = layers;
    this.heads = heads;
    this.scores = scores;
  }

  /** Every head of every layer. */
  public static AttentionSelection all() {
    return new AttentionSelection(ALL, ALL, false);
  }

  /** Only these layers; at least one. */
  public AttentionSelection layers(int... layers) {
    return new AttentionSelection(sorted("layer", layers), heads, scores);
  }

  /** Only these heads of each layer; at least one. */
  public AttentionSelection heads(int... heads) {
    return new AttentionSelection(layers, sorted("head", heads), scores);
  }

  /** Pre-softmax scores too. */
  public AttentionSelection withScores() {
    return new AttentionSelection(layers, heads, true);
  }

  /** Whether pre-softmax scores were asked for. */
  public boolean scores() {
    return scores;
  }

  /**
   * The chosen layers of a model, ascending.
   *
   * @throws IllegalArgumentException if the model lacks one of them
   */
  public int[] layersOf(Gpt2Config config) {
    return chosen("layer", layers, config.nLayer());
  }

  /**
   * The chosen heads of a model, ascending.
   *
   * @throws IllegalArgumentException if the model lacks one of them
   */
  public int[] headsOf(Gpt2Config config) {
    return chosen("head", heads, config.nHead());
  }

  private static int[] sorted(String what, int[] numbers) {
    if (numbers.length == 0) {
      throw new IllegalArgumentException("an attention selection without a " + what);
    }
    return Arrays.stream(numbers).sorted().distinct().toArray();
  }

  private static int[] chosen(String what, int[] chosen, int count) {
    if (chosen.length == 0) {
      int[] all = new int[count];
      Arrays.setAll(all, i -> i);
      return all;
    }
    for (int number : chosen) {
      if (number < 0 || number >= count) {
        throw new IllegalArgumentException(
            "%s %d does not exist: the model has %ss 0..%d"
                .formatted(what, number, what, count - 1));
      }
    }
    return chosen.clone();
  }
}
