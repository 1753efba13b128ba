package dev.loupe.ops;

import dev.loupe.weights.Gpt2Config;
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

  /** Most rows of a pass. */
  public int rows() {
    return Math.max(positions, samples);
  }
}
