package dev.loupe.ops;

import dev.loupe.weights.config.Gpt2Config;
import java.util.Optional;

/**
 * How large a session will be, for a backend to say beforehand whether it has room.
 *
 * @param config of the model
 * @param positions most positions of a sequence, and most rows of a pass unless there are more
 *     samples
 * @param samples sequences
 * @param logitRows most rows of logits made at a time
 * @param writes whether tokens will be written
 * @param attention which attention is kept, if any
 * @param attentionScratch bytes that the attention of a prompt is rebuilt in
 */
public record SessionSize(
    Gpt2Config config,
    int positions,
    int samples,
    int logitRows,
    boolean writes,
    Optional<AttentionPlan> attention,
    long attentionScratch) {

  /** Least positions of a size that is kept: the height of an attention tile. */
  private static final int LEAST_KEPT = 64;

  /**
   * Positions of a session whose memory is to serve others too: a power of two, so that the texts
   * that a server gets fall into few sizes and none takes more than twice what it needs.
   *
   * @param positions at least
   * @param most those of the model
   */
  public static int kept(int positions, int most) {
    int power = Integer.highestOneBit(Math.max(positions - 1, 1)) * 2;
    return Math.max(positions, Math.min(Math.max(power, LEAST_KEPT), most));
  }

  /** Most rows of a pass. */
  public int rows() {
    return Math.max(positions, samples);
  }
}
