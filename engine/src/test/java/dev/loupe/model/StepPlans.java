package dev.loupe.model;

import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.StepPlan;
import dev.loupe.ops.Tensor;
import dev.loupe.sampling.Sampling;
import java.util.BitSet;
import java.util.Optional;

/** Plans of decoding steps that may choose any id of the vocabulary. */
public final class StepPlans {
  /**
   * After a prompt in the cache.
   *
   * @param a of one row for each sequence, see {@link Activations#forSteps}
   * @param logits [sequences, V]
   * @param limit most results that will be taken
   */
  public static StepPlan of(
      Transformer model,
      KvCache kv,
      Activations a,
      Tensor logits,
      Sampling sampling,
      int limit,
      Optional<AttentionPlan> attention) {
    BitSet all = new BitSet();
    all.set(0, model.config().vocabSize());
    return new StepPlan(
        (pass, hook) -> {
          model.forward(pass, a, hook);
          model.logits(pass, a, 0, logits);
        },
        kv,
        logits,
        sampling,
        all,
        new BitSet(),
        0,
        kv.length(0),
        model.config().nPositions(),
        limit,
        false,
        attention);
  }

  private StepPlans() {}
}
