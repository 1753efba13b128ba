package dev.loupe.model;

import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.StepPlan;
import dev.loupe.ops.Steps;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.sampling.Sampling;
import dev.loupe.weights.config.Gpt2Config;
import java.util.BitSet;
import java.util.List;
import java.util.Optional;
import java.util.stream.IntStream;

/** Decoding steps that may choose any id of the vocabulary. */
public final class StepPlans {
  /**
   * Steps of all sequences of a cache, which holds their prompts.
   *
   * @param a of one row for each sequence, see {@link Activations#forSteps}
   * @param logits [sequences, V]
   */
  public static Steps of(
      Transformer model,
      KvCache kv,
      Activations a,
      Tensor logits,
      Sampling sampling,
      Optional<AttentionPlan> attention) {
    BitSet all = new BitSet();
    all.set(0, model.config().vocabSize());
    StepPlan.Step step =
        (pass, hook) -> {
          model.forward(pass, a, hook);
          model.logits(pass, a, 0, logits);
        };
    Steps steps = model.ops().steps(new StepPlan(step, kv, logits, all, attention));
    List<Steps.Row> rows =
        IntStream.range(0, kv.sequences())
            .mapToObj(s -> new Steps.Row(s, 1, kv.length(s) + 1, s, sampling, new BitSet()))
            .toList();
    steps.set(rows, false);
    return steps;
  }

  /** Steps of so many sequences, each of one token, in a whole context; greedy. */
  public static Steps begun(
      Transformer model, TensorArena arena, int sequences, Optional<AttentionPlan> attention) {
    Gpt2Config config = model.config();
    KvCache kv =
        new KvCache(
            arena,
            config.nLayer(),
            config.nHead(),
            config.headDim(),
            sequences,
            config.nPositions());
    for (int s = 0; s < sequences; s++) {
      kv.extend(Batch.sequence(s, 0, 1));
    }
    Tensor logits = arena.allocate(sequences, config.vocabSize());
    Activations a = Activations.forSteps(arena, config, sequences);
    return of(model, kv, a, logits, Sampling.greedy(), attention);
  }

  private StepPlans() {}
}
