package dev.loupe.ops;

import java.util.BitSet;
import java.util.Optional;

/**
 * What decoding steps are to do, whichever sequences take part in them.
 *
 * @param step reads the rows of a pass, one of each sequence, and leaves their logits in the first
 *     rows of {@code logits}
 * @param kv the cache; its sequences may stand at different positions
 * @param logits [S, V], as many rows as the cache has sequences
 * @param allowed ids that may be chosen
 * @param attention which attention will be asked for, if any
 */
public record StepPlan(
    Step step, KvCache kv, Tensor logits, BitSet allowed, Optional<AttentionPlan> attention) {
  /** What the model does in a step. */
  @FunctionalInterface
  public interface Step {
    /**
     * Puts the operations on the device.
     *
     * @param hook sees the attention of each layer
     */
    void run(Pass pass, AttentionHook hook);
  }
}
