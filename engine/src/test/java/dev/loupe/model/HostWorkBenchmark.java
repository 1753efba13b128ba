package dev.loupe.model;

import dev.loupe.EmulatedGpu;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.Gemm;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Precision;
import dev.loupe.ops.StepPlan;
import dev.loupe.ops.Steps;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.ops.cuda.CudaOps;
import dev.loupe.sampling.Sampling;
import dev.loupe.weights.Checkpoint;
import java.util.Arrays;
import java.util.Optional;

/**
 * What the host does for a token that a GPU writes: the time of a step whose kernels do nothing. On
 * the emulated driver; prints the median of runs of 200 steps, in microseconds, and their range.
 */
final class HostWorkBenchmark {
  private static final int STEPS = 200;

  public static void main(String[] args) throws Exception {
    for (boolean maps : new boolean[] {false, true}) {
      double[] micros = new double[20];
      for (int i = -10; i < micros.length; i++) { // ten runs to warm up
        double each = run(maps);
        if (i >= 0) {
          micros[i] = each;
        }
      }
      Arrays.sort(micros);
      System.out.printf(
          "maps %s: %.1f us a step (%.1f to %.1f)%n",
          maps ? "of all layers and heads" : "off",
          micros[micros.length / 2],
          micros[0],
          micros[micros.length - 1]);
    }
  }

  private static double run(boolean maps) throws Exception {
    EmulatedGpu.reset(); // opening tries the kernels out
    try (Checkpoint checkpoint = Checkpoint.open(Golden.DEMO_MODEL);
        CudaOps ops = new CudaOps(0, Precision.F16, Gemm.AUTO);
        Transformer model = new Transformer(checkpoint, ops);
        TensorArena arena = ops.arena()) {
      var config = model.config();
      KvCache kv =
          new KvCache(
              arena, config.nLayer(), config.nHead(), config.headDim(), 1, config.nPositions());
      Tensor logits = arena.allocate(1, config.vocabSize());
      Activations a = Activations.forSteps(arena, config, 1);
      kv.extend(dev.loupe.ops.Batch.sequence(0, 0, 1));
      Optional<AttentionPlan> attention =
          maps ? Optional.of(AttentionSelection.all().of(config)) : Optional.empty();
      StepPlan plan = StepPlans.of(model, kv, a, logits, Sampling.greedy(), STEPS + 10, attention);
      EmulatedGpu.kernelsOff("");
      try (Steps steps = ops.steps(() -> plan).orElseThrow()) {
        for (int i = 0; i < 10; i++) { // records the graphs
          steps.next();
        }
        long start = System.nanoTime();
        for (int i = 0; i < STEPS; i++) {
          steps.next();
          if (!steps.isFinite(0)) { // looks at the result as a run does
            throw new IllegalStateException();
          }
        }
        return (System.nanoTime() - start) / 1e3 / STEPS;
      }
    }
  }

  private HostWorkBenchmark() {}
}
