package dev.loupe.ops;

/**
 * Decoding steps on a device. A step reads the tokens that were chosen last, one of each sequence,
 * and chooses the next ones; steps run ahead of the host, which takes their results in order.
 */
public interface Steps extends AutoCloseable {
  /**
   * Waits for the next step's result. The first chooses from the logits as they are; each later one
   * reads the tokens chosen before.
   */
  void next();

  /**
   * The token that the step chose for {@code sequence}, one of those that are allowed.
   *
   * @throws RuntimeException if the device says that it found none, or names another
   */
  int id(int sequence);

  /** False if a logit of {@code sequence} was NaN or infinite. */
  boolean isFinite(int sequence);

  /** The logits that the step chose from, where the plan wants them. */
  void logits(int sequence, float[] into);

  /**
   * One row of attention of the token that the step read.
   *
   * @param layer index among the plan's layers
   * @param head index among the plan's heads
   * @param count how many elements the row has, to the start of {@code into}
   */
  void attention(
      AttentionPlan.Kind kind, int sequence, int layer, int head, float[] into, int count);

  /**
   * Goes on after the cache was filled anew.
   *
   * @param ids the token of each sequence that the next step reads
   * @param position their position
   */
  void restart(int[] ids, int position);

  @Override
  void close();
}
