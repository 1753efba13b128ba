package dev.loupe.ops;

import dev.loupe.sampling.Sampling;
import java.util.BitSet;
import java.util.Optional;

/**
 * What decoding steps are to do.
 *
 * @param step reads the rows of a pass, one of each sequence, and leaves their logits
 * @param kv the cache; all its sequences stand at the same position
 * @param logits [S, V]: at first, those of the prompt's last row in row 0
 * @param sampling how tokens are chosen
 * @param allowed ids that may be chosen
 * @param seen ids of the prompt, for the repetition penalty
 * @param firstSample by which number the first sequence's tokens are drawn; the others count on
 * @param place place in the run of the first token to be chosen
 * @param positions positions that the model has
 * @param limit most results that will be taken
 * @param wantsLogits whether {@link Steps#logits} will be asked for
 * @param attention which attention will be asked for, if any
 */
public record StepPlan(
    Step step,
    KvCache kv,
    Tensor logits,
    Sampling sampling,
    BitSet allowed,
    BitSet seen,
    int firstSample,
    int place,
    int positions,
    int limit,
    boolean wantsLogits,
    Optional<AttentionPlan> attention) {
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
