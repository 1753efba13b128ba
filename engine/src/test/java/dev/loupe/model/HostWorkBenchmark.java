package dev.loupe.model;

import dev.loupe.EmulatedGpu;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.Gemm;
import dev.loupe.ops.Precision;
import dev.loupe.ops.Steps;
import dev.loupe.ops.TensorArena;
import dev.loupe.ops.cuda.CudaOps;
import dev.loupe.weights.Checkpoint;
import java.util.Arrays;
import java.util.Optional;

/**
 * What the host does for a token that a GPU writes: the time of a step whose kernels do nothing,
 * divided by its sequences. On the emulated driver; prints the median of runs of 200 steps, in
 * microseconds, and their range.
 */
final class HostWorkBenchmark {
  private static final int STEPS = 200;

  public static void main(String[] args) throws Exception {
    for (int sequences : new int[] {1, 32}) {
      measure(sequences, false);
    }
    measure(1, true);
  }

  private static void measure(int sequences, boolean maps) throws Exception {
    double[] micros = new double[40];
    EmulatedGpu.reset(); // opening tries the kernels out
    try (Checkpoint checkpoint = Checkpoint.open(Golden.DEMO_MODEL);
        CudaOps ops = new CudaOps(0, Precision.F16, Gemm.AUTO);
        Transformer model = new Transformer(checkpoint, ops)) {
      EmulatedGpu.kernelsOff("");
      for (int i = -200; i < micros.length; i++) { // until all is compiled
        double each = run(model, sequences, maps);
        if (i >= 0) {
          micros[i] = each;
        }
      }
    }
    Arrays.sort(micros);
    System.out.printf(
        "%d sequences, maps %s: %.1f us a token (%.1f to %.1f)%n",
        sequences,
        maps ? "of all layers and heads" : "off",
        micros[micros.length / 2],
        micros[0],
        micros[micros.length - 1]);
  }

  private static double run(Transformer model, int sequences, boolean maps) {
    Optional<AttentionPlan> attention =
        maps ? Optional.of(AttentionSelection.all().of(model.config())) : Optional.empty();
    try (TensorArena arena = model.ops().arena()) {
      try (Steps steps = StepPlans.begun(model, arena, sequences, attention)) {
        for (int i = 0; i < 10; i++) { // records the graphs
          steps.start(4);
          steps.take();
        }
        long start = System.nanoTime();
        for (int i = 0; i < STEPS; i++) {
          steps.start(4);
          steps.take();
          for (int row = 0; row < sequences; row++) { // looks at the result as a run does
            if (!steps.isFinite(row)) {
              throw new IllegalStateException();
            }
          }
        }
        return (System.nanoTime() - start) / 1e3 / STEPS / sequences;
      }
    }
  }

  private HostWorkBenchmark() {}
}
