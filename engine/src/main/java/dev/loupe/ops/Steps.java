package dev.loupe.ops;

import dev.loupe.sampling.Sampling;
import java.util.BitSet;
import java.util.List;

/**
 * Decoding steps on a device. A step reads the newest token of each sequence that takes part, and
 * chooses the next one; steps run ahead of the host, which takes their results in order. What a
 * sequence gets does not depend on those beside it.
 */
public interface Steps extends AutoCloseable {
  /**
   * A sequence that takes part. Its newest token stands behind all that the cache holds of it.
   *
   * @param sequence of the cache
   * @param id of its newest token
   * @param place in the run of the token to be chosen next
   * @param sample by which number its tokens are drawn
   * @param sampling how they are chosen
   * @param seen ids that the repetition penalty applies to
   */
  record Row(int sequence, int id, int place, int sample, Sampling sampling, BitSet seen) {}

  /**
   * From now on these sequences take part, one at least.
   *
   * @param wantsLogits whether {@link #logits} will be asked for
   * @throws IllegalStateException if steps are under way
   */
  void set(List<Row> rows, boolean wantsLogits);

  /** Steps that were started and whose results were not taken. */
  int underWay();

  /**
   * Starts steps until {@code many} are under way, or as many as the device can be ahead. The
   * caches of all that take part must have room for them.
   */
  void start(int many);

  /**
   * Waits for the result of the step that was started first.
   *
   * @throws IllegalStateException if none is under way
   */
  void take();

  /**
   * The token that the step chose in {@code row}, one of those that are allowed.
   *
   * @throws RuntimeException if the device says that it found none, or names another
   */
  int id(int row);

  /** False if a logit of {@code row} was NaN or infinite. */
  boolean isFinite(int row);

  /** The logits that the step chose from, where they are wanted. */
  void logits(int row, float[] into);

  /**
   * One row of attention of the token that the step read.
   *
   * @param row of the step
   * @param layer index among the plan's layers
   * @param head index among the plan's heads
   * @param count how many elements the row has, to the start of {@code into}
   */
  void attention(AttentionPlan.Kind kind, int row, int layer, int head, float[] into, int count);

  @Override
  void close();
}
