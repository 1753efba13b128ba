package dev.loupe.attention;

import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.AttentionPlan.Kind;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.tensor.DType;
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
  /** What may be kept of the attention of a run. */
  public enum Part {
    /** What every row read of each key: {@link AttentionMaps}. */
    MAPS,
    /** Pre-softmax scores, likewise. */
    SCORES,
    /** A few numbers of each row: {@link AttentionStatistics}. */
    ROW_STATISTICS,
    /** A few numbers of each head: {@link HeadStatistics}. */
    HEAD_STATISTICS,
    /** Those of them that weigh attention by what is read: {@link ValueNorms}. */
    VALUE_NORMS,
    /** What the layers come to together: {@link AttentionRollout}. */
    ROLLOUT
  }

  private static final int[] ALL = {};

  private final int[] layers;
  private final int[] heads;
  private final Set<Part> parts;
  private final DType dtype;
  private final int top;
  private final int repeated;

  private AttentionSelection(
      int[] layers, int[] heads, Set<Part> parts, DType dtype, int top, int repeated) {
    this.layers = layers;
    this.heads = heads;
    this.parts = parts;
    this.dtype = dtype;
    this.top = top;
    this.repeated = repeated;
  }

  /** Every head of every layer. */
  public static AttentionSelection all() {
    return new AttentionSelection(ALL, ALL, EnumSet.of(Part.MAPS), DType.F32, 1, 0);
  }

  /** Only these layers; at least one. */
  public AttentionSelection layers(int... layers) {
    return new AttentionSelection(sorted("layer", layers), heads, parts, dtype, top, repeated);
  }

  /** Only these heads of each layer; at least one. */
  public AttentionSelection heads(int... heads) {
    return new AttentionSelection(layers, sorted("head", heads), parts, dtype, top, repeated);
  }

  /** Pre-softmax scores too. */
  public AttentionSelection withScores() {
    return with(Part.SCORES);
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
    Set<Part> more = EnumSet.copyOf(parts);
    more.add(Part.ROW_STATISTICS);
    return new AttentionSelection(layers, heads, more, dtype, top, repeated);
  }

  /**
   * Statistics in place of maps: none is kept, nor, unless something else asks for it, written
   * anywhere on the way, so that memory and time grow with the number of tokens where maps grow
   * with its square.
   *
   * @param top likewise
   */
  public AttentionSelection statisticsOnly(int top) {
    AttentionSelection both = withStatistics(top);
    return both.without(Part.MAPS);
  }

  /** Statistics of each head too: scores, which say what it does, and its heaviest edges. */
  public AttentionSelection withHeadStatistics() {
    return with(Part.HEAD_STATISTICS);
  }

  /**
   * Statistics of each head alone. Rows are rebuilt and go by: what is kept does not grow with the
   * square of the number of tokens.
   */
  public AttentionSelection headStatisticsOnly() {
    return withHeadStatistics().without(Part.MAPS);
  }

  /**
   * Takes the text for random tokens that come twice, so that the statistics of heads go by
   * diagonals; see {@link HeadScore}.
   *
   * @param length how many are repeated, L: at least 1
   */
  public AttentionSelection repeated(int length) {
    if (length < 1) {
      throw new IllegalArgumentException("a sequence of %d tokens repeated".formatted(length));
    }
    return new AttentionSelection(layers, heads, parts, dtype, top, length);
  }

  /**
   * In the statistics of heads, attention weighted by the norm of what is read too. A backend whose
   * steps run on a device has them of a text that is read, not of one that is written.
   */
  public AttentionSelection withValueNorms() {
    return with(Part.HEAD_STATISTICS).with(Part.VALUE_NORMS);
  }

  /** Attention rollout too, which takes all layers and heads. */
  public AttentionSelection withRollout() {
    return with(Part.ROLLOUT);
  }

  /** Whether a run keeps {@code part}. */
  public boolean keeps(Part part) {
    return parts.contains(part);
  }

  /** How many random tokens come twice, L; 0 where it is any text. */
  public int repeated() {
    return repeated;
  }

  /**
   * What maps are kept as: F32, or F16, half the memory and three digits. Scores are f32 always.
   */
  public AttentionSelection dtype(DType dtype) {
    if (dtype != DType.F32 && dtype != DType.F16) {
      throw new IllegalArgumentException(
          "maps as %s: f32 or f16".formatted(dtype.name().toLowerCase(Locale.ROOT)));
    }
    return new AttentionSelection(layers, heads, parts, dtype, top, repeated);
  }

  private AttentionSelection with(Part part) {
    Set<Part> more = EnumSet.copyOf(parts);
    more.add(part);
    return new AttentionSelection(layers, heads, more, dtype, top, repeated);
  }

  private AttentionSelection without(Part part) {
    Set<Part> fewer = EnumSet.copyOf(parts);
    fewer.remove(part);
    return new AttentionSelection(layers, heads, fewer, dtype, top, repeated);
  }

  /** What a backend has to rebuild for the parts. */
  private Set<Kind> kinds() {
    Set<Kind> kinds = EnumSet.noneOf(Kind.class);
    for (Part part : parts) {
      switch (part) {
        case MAPS, ROLLOUT -> kinds.add(Kind.PROBABILITIES);
        case SCORES -> kinds.add(Kind.SCORES);
        case ROW_STATISTICS -> kinds.add(Kind.STATISTICS);
        case HEAD_STATISTICS -> kinds.addAll(EnumSet.of(Kind.PROBABILITIES, Kind.STATISTICS));
        case VALUE_NORMS -> {} // of values, not of rows
      }
    }
    return kinds;
  }

  /**
   * What this asks of a model.
   *
   * @throws IllegalArgumentException if the model lacks a layer or head, or rollout some of them
   */
  public AttentionPlan of(Gpt2Config config) {
    if (keeps(Part.ROLLOUT) && layers.length + heads.length > 0) {
      throw new IllegalArgumentException(
          "attention rollout goes through all layers and heads, and some were chosen");
    }
    return new AttentionPlan(
        chosen("layer", layers, config.nLayer()),
        chosen("head", heads, config.nHead()),
        kinds(),
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
