package dev.loupe.model;

import dev.loupe.EmulatedGpu;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.ops.AttentionHook;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.Batch;
import dev.loupe.ops.Gemm;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Pass;
import dev.loupe.ops.Precision;
import dev.loupe.ops.SessionRoom;
import dev.loupe.ops.SessionSize;
import dev.loupe.ops.Steps;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.cuda.CudaOps;
import dev.loupe.sampling.Sampling;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.config.Gpt2Config;
import java.util.Arrays;
import java.util.Optional;

/**
 * What a request costs the host beside its tokens: a prompt of 40 and 8 tokens of the demo model,
 * by kernels that do nothing. On the emulated driver; prints the driver calls of a request, and the
 * median and range of their microseconds, where its memory is new and where an earlier request left
 * it.
 */
final class HostRequestBenchmark {
  private static final int PROMPT = 40;
  private static final int TOKENS = 8;

  private final Transformer model;
  private final Optional<AttentionPlan> attention;
  private final boolean kept;

  private HostRequestBenchmark(Transformer model, Optional<AttentionPlan> attention, boolean kept) {
    this.model = model;
    this.attention = attention;
    this.kept = kept;
  }

  public static void main(String[] args) throws Exception {
    EmulatedGpu.reset(); // opening tries the kernels out
    try (Checkpoint checkpoint = Checkpoint.open(Golden.DEMO_MODEL);
        CudaOps ops = new CudaOps(0, Precision.F16, Gemm.OWN);
        Transformer model = new Transformer(checkpoint, ops)) {
      EmulatedGpu.kernelsOff("");
      AttentionPlan all = AttentionSelection.all().of(model.config());
      for (Optional<AttentionPlan> attention :
          Arrays.asList(Optional.<AttentionPlan>empty(), Optional.of(all))) {
        for (boolean kept : new boolean[] {false, true}) {
          new HostRequestBenchmark(model, attention, kept).print();
        }
      }
    }
  }

  private void print() {
    double[] micros = new double[100];
    for (int i = -50; i < micros.length; i++) { // some to warm up
      EmulatedGpu.resetCalls();
      long start = System.nanoTime();
      request(i);
      if (i >= 0) {
        micros[i] = (System.nanoTime() - start) / 1e3;
      }
    }
    EmulatedGpu.Calls calls = EmulatedGpu.calls();
    Arrays.sort(micros);
    System.out.printf(
        "maps %s, memory %s: %.0f us (%.0f to %.0f), %s%n",
        attention.isPresent() ? "of all layers and heads" : "off",
        kept ? "kept" : "new",
        micros[micros.length / 2],
        micros[0],
        micros[micros.length - 1],
        calls);
  }

  private void request(int seed) {
    Gpt2Config config = model.config();
    SessionSize size = new SessionSize(config, config.nPositions(), 1, 1, true, attention, 0);
    SessionRoom room =
        kept ? model.session(size, size) : new SessionRoom(model.ops().arena(), size);
    try (var arena = room.arena()) {
      KvCache kv =
          new KvCache(
              arena, config.nLayer(), config.nHead(), config.headDim(), 1, config.nPositions());
      Activations a = Activations.allocate(arena, config, config.nPositions());
      Tensor logits = arena.allocate(1, config.vocabSize());
      Activations step = Activations.forSteps(arena, config, 1);
      int[] ids = new int[PROMPT];
      Arrays.fill(ids, 5);
      Activations prompt = a.rows(PROMPT);
      try (Pass pass = model.begin(Batch.sequence(0, 0, ids), kv, Mask.CAUSAL)) {
        model.forward(pass, prompt, AttentionHook.NONE);
        model.logits(pass, prompt, PROMPT - 1, logits);
      }
      model.ops().read(logits, 0, new float[config.vocabSize()], config.vocabSize());
      try (Steps steps = StepPlans.of(model, kv, step, logits, Sampling.seeded(seed), attention)) {
        for (int i = 0; i < TOKENS; i++) {
          steps.start(Math.min(4, TOKENS - i));
          steps.take();
        }
      }
      arena.keep();
    }
  }
}
