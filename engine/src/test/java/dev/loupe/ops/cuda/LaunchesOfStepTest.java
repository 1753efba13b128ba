package dev.loupe.ops.cuda;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.OnGpu;
import dev.loupe.cuda.driver.LaunchResources;
import dev.loupe.model.StepPlans;
import dev.loupe.model.Transformer;
import dev.loupe.ops.Attention;
import dev.loupe.ops.Batch;
import dev.loupe.ops.Gemm;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.LayerNorm;
import dev.loupe.ops.Linear;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Normed;
import dev.loupe.ops.Pass;
import dev.loupe.ops.Precision;
import dev.loupe.ops.Steps;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.ops.Weight;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.RandomCheckpoint;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.tensor.DType;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.stream.IntStream;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/** How many kernels a decoding step launches, and that the layer norms in them cost no bit. */
@OnGpu
class LaunchesOfStepTest {
  private static final int POSITIONS = 300;

  @TempDir Path folder;

  private Checkpoint checkpoint(int layers) throws Exception {
    Gpt2Config config =
        new Gpt2Config(
            layers, 2, 16, POSITIONS, 77, 64, Activation.GELU_NEW, 1e-5f, true, false, 76, 76);
    if (!Files.exists(folder.resolve("config.json"))) {
      RandomCheckpoint.Layout layout = new RandomCheckpoint.Layout(DType.F32, true, true, true);
      RandomCheckpoint.write(config, 5, folder, layout, Progress.NONE);
    }
    return Checkpoint.open(folder);
  }

  /** Five a layer; embedding, head, sampler, and what moves the step on. */
  @ParameterizedTest
  @CsvSource({"12, 1, 64", "12, 8, 64", "48, 1, 244"})
  void aStepLaunchesSoManyKernels(int layers, int samples, int launches) throws Exception {
    for (Precision precision :
        layers == 48 ? List.of(Precision.F16) : List.of(Precision.values())) {
      assertEquals(launches, launches(layers, samples, precision), precision.toString());
    }
  }

  private int launches(int layers, int samples, Precision precision) throws Exception {
    try (Checkpoint checkpoint = checkpoint(layers);
        CudaOps ops = new CudaOps(0, precision, Gemm.OWN, false);
        Transformer model = new Transformer(checkpoint, ops);
        TensorArena arena = ops.arena()) {
      try (Steps steps = StepPlans.begun(model, arena, samples, Optional.empty())) {
        List<String> kernels =
            ops.gpu().resources(() -> steps.start(2)).stream()
                .map(LaunchResources::kernel)
                .toList();
        int last = kernels.lastIndexOf("step_advance_i32");
        return last - kernels.subList(0, last).lastIndexOf("step_advance_i32");
      }
    }
  }

  /** Of the products that a norm comes before, at once and in two steps. */
  @ParameterizedTest
  @EnumSource
  void normsInProductsCostNoBit(Precision precision) throws Exception {
    for (int rows : new int[] {1, 3, 8, 9}) {
      try (Checkpoint checkpoint = checkpoint(1);
          CudaOps ops = new CudaOps(0, precision, Gemm.OWN, true);
          TensorArena arena = ops.arena()) {
        Tensor wte = arena.table(checkpoint.tensor("wte.weight"));
        Tensor wpe = arena.table(checkpoint.tensor("wpe.weight"));
        LayerNorm norm =
            new LayerNorm(
                arena.vector(checkpoint.tensor("h.0.ln_1.weight")),
                arena.vector(checkpoint.tensor("h.0.ln_1.bias")),
                1e-5f);
        Linear fc = linear(checkpoint, arena, "mlp.c_fc");
        Linear attn = linear(checkpoint, arena, "attn.c_attn");
        Weight head = arena.head(checkpoint.tensor("wte.weight"), wte);
        KvCache kv = new KvCache(arena, 1, 2, 8, 1, 20);
        Tensor x = arena.allocate(rows, 16);
        Normed normed = new Normed(x, norm, arena.allocate(rows, 16));
        Tensor qkv = arena.allocate(rows, 48);
        Tensor inner = arena.allocate(rows, 64);
        Tensor logits = arena.allocate(rows, 77);
        int[] ids = IntStream.range(3, 3 + rows).toArray();
        try (Pass pass = ops.begin(Batch.sequence(0, 0, ids), kv, Mask.CAUSAL)) {
          pass.embed(wte, wpe, x);
          Attention attention = pass.attention(0, 1, qkv, arena.allocate(rows, 2));
          attention.project(normed, attn);
          pass.linear(normed, fc, Activation.GELU_NEW, inner);
          pass.logits(normed, head, logits);
          float[] atOnce = all(ops, qkv, inner, logits);
          pass.layerNorm(x, norm, normed.room());
          attention.project(normed.room(), attn);
          pass.linear(normed.room(), fc, Activation.GELU_NEW, inner);
          pass.logits(normed.room(), head, logits);
          assertArrayEquals(all(ops, qkv, inner, logits), atOnce, rows + " rows");
        }
      }
    }
  }

  private static Linear linear(Checkpoint checkpoint, TensorArena arena, String name) {
    return new Linear(
        arena.weight(checkpoint.tensor("h.0." + name + ".weight")),
        arena.vector(checkpoint.tensor("h.0." + name + ".bias")));
  }

  private static float[] all(CudaOps ops, Tensor... tensors) {
    int n = Arrays.stream(tensors).mapToInt(t -> t.rows() * t.cols()).sum();
    float[] all = new float[n];
    int at = 0;
    for (Tensor t : tensors) {
      float[] row = new float[t.cols()];
      for (int r = 0; r < t.rows(); r++) {
        ops.read(t, r, row, row.length);
        System.arraycopy(row, 0, all, at, row.length);
        at += row.length;
      }
    }
    return all;
  }
}
