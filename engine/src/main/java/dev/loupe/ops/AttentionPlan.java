package dev.loupe.ops;

import dev.loupe.weights.tensor.DType;
import java.util.Collections;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;

/**
 * Which attention a session keeps.
 *
 * @param layers layers of the model, ascending
 * @param heads heads of each of them, ascending
 * @param kept what is kept of each row
 * @param dtype what probabilities are brought to the host as: F32, or F16 where half the bytes are
 *     worth three digits
 * @param top how many keys {@link Kind#STATISTICS} names of each row
 */
public record AttentionPlan(
    List<Integer> layers, List<Integer> heads, Set<Kind> kept, DType dtype, int top) {
  /** What can be kept of a row of attention. */
  public enum Kind {
    /** What the row read of each key. */
    PROBABILITIES,
    /** The same before the softmax; f32 always, since halves would be off by percents after it. */
    SCORES,
    /** A few numbers that say how the row is spread: {@link Attention#statistics}. */
    STATISTICS
  }

  /** Most keys that statistics name of a row. */
  public static final int MAX_TOP = 16;

  public AttentionPlan {
    layers = List.copyOf(layers);
    heads = List.copyOf(heads);
    kept = Collections.unmodifiableSet(EnumSet.copyOf(kept)); // in the order of the kinds
  }

  /** Numbers that {@link Kind#STATISTICS} keeps of a row. */
  public static int statisticsOf(int top) {
    return 2 + 2 * top;
  }

  /** Elements of a row that reads {@code keys} keys. */
  public int columns(Kind kind, int keys) {
    return kind == Kind.STATISTICS ? statisticsOf(top) : keys;
  }

  /** Element type of a row. */
  public DType dtype(Kind kind) {
    return kind == Kind.PROBABILITIES ? dtype : DType.F32;
  }

  /**
   * Bytes for {@code rows} rows of all heads of one layer, with what a backend needs to align the
   * four parts of statistics.
   */
  public long bytes(Kind kind, long rows, int keys) {
    long padding = kind == Kind.STATISTICS ? 4 * 12 : 0;
    return heads.size() * rows * columns(kind, keys) * dtype(kind).bytes() + padding;
  }

  /** The same of all kinds. */
  public long bytes(long rows, int keys) {
    return kept.stream().mapToLong(kind -> bytes(kind, rows, keys)).sum();
  }
}
