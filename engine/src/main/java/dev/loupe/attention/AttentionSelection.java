package dev.loupe.attention;

import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.AttentionPlan.Kind;
import dev.loupe.weights.DType;
import dev.loupe.weights.Gpt2Config;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.stream.IntStream;

/**
 * Which attention to keep: maps of the chosen heads of the chosen layers, unless told otherwise.
 *
 * <p>"All" stays all for any model; named layers and heads are checked against the model when a run
 * begins.
 */
public final class AttentionSelection {
  private static final int[] ALL = {};

  private final int[] layers;
  private final int[] heads;
  private final Set<Kind> kept;
  private final DType dtype;
  private final int top;

  private AttentionSelection(int[] layers, int[] heads, Set<Kind> kept, DType dtype, int top) {
    this.layers = layers;
    this.heads = heads;
    this.kept = kept;
    this.dtype = dtype;
    this.top = top;
  }

  /** Every head of every layer. */
  public static AttentionSelection all() {
    return new AttentionSelection(ALL, ALL, EnumSet.of(Kind.PROBABILITIES), DType.F32, 0);
  }

  /** Only these layers; at least one. */
  public AttentionSelection layers(int... layers) {
    return new AttentionSelection(sorted("layer", layers), heads, kept, dtype, top);
  }

  /** Only these heads of each layer; at least one. */
  public AttentionSelection heads(int... heads) {
    return new AttentionSelection(layers, sorted("head", heads), kept, dtype, top);
  }

  /** Pre-softmax scores too. */
  public AttentionSelection withScores() {
    return new AttentionSelection(layers, heads, with(Kind.SCORES), dtype, top);
  }

  /**
   * Statistics of each row too: entropy, mean distance, and the {@code top} keys that it read most.
   *
   * @param top 1 to 16
   */
  public AttentionSelection withStatistics(int top) {
    if (top < 1 || top > AttentionPlan.MAX_TOP) {
      throw new IllegalArgumentException(
          "statistics of the top %d keys: not 1 to %d".formatted(top, AttentionPlan.MAX_TOP));
    }
    return new AttentionSelection(layers, heads, with(Kind.STATISTICS), dtype, top);
  }

  /**
   * Statistics alone: no map is kept, nor written anywhere on the way, so that memory and time grow
   * with the number of tokens where maps grow with its square.
   *
   * @param top likewise
   */
  public AttentionSelection statisticsOnly(int top) {
    AttentionSelection both = withStatistics(top);
    return new AttentionSelection(layers, heads, EnumSet.of(Kind.STATISTICS), dtype, both.top);
  }

  /**
   * What maps are kept as: F32, or F16, half the memory and three digits. Scores are f32 always.
   */
  public AttentionSelection dtype(DType dtype) {
    if (dtype != DType.F32 && dtype != DType.F16) {
      throw new IllegalArgumentException(
          "maps as %s: f32 or f16".formatted(dtype.name().toLowerCase(Locale.ROOT)));
    }
    return new AttentionSelection(layers, heads, kept, dtype, top);
  }

  private Set<Kind> with(Kind kind) {
    Set<Kind> more = EnumSet.copyOf(kept);
    more.add(kind);
    return more;
  }

  /**
   * What this asks of a model.
   *
   * @throws IllegalArgumentException if the model lacks a layer or head
   */
  public AttentionPlan of(Gpt2Config config) {
    return new AttentionPlan(
        chosen("layer", layers, config.nLayer()),
        chosen("head", heads, config.nHead()),
        kept,
        dtype,
        top);
  }

  private static int[] sorted(String what, int[] numbers) {
    if (numbers.length == 0) {
      throw new IllegalArgumentException("an attention selection without a " + what);
    }
    return Arrays.stream(numbers).sorted().distinct().toArray();
  }

  private static List<Integer> chosen(String what, int[] chosen, int count) {
    if (chosen.length == 0) {
      return IntStream.range(0, count).boxed().toList();
    }
    for (int number : chosen) {
      if (number < 0 || number >= count) {
        throw new IllegalArgumentException(
            "%s %d does not exist: the model has %ss 0..%d"
                .formatted(what, number, what, count - 1));
      }
    }
    return Arrays.stream(chosen).boxed().toList();
  }
}
