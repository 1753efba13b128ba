package dev.loupe.bench.kernel;

import dev.loupe.ops.AttentionInput;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.LayerNorm;
import dev.loupe.ops.Linear;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.ops.cpu.CpuOps;
import dev.loupe.ops.cpu.CpuParts;
import dev.loupe.weights.Activation;
import dev.loupe.weights.DType;
import dev.loupe.weights.StoredTensor;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.stream.IntStream;

/** The product's own code for each operation. */
final class CpuKernels {
  private CpuKernels() {}

  static CpuCandidate.Kernel of(Operation operation) {
    return switch (operation) {
      case ATTENTION -> CpuKernels::attention;
      case DECODE_ATTENTION -> CpuKernels::decodeAttention;
      case MAP -> CpuKernels::map;
      case LINEAR -> CpuKernels::linear;
      case LAYERNORM -> CpuKernels::layerNorm;
      case SOFTMAX -> CpuKernels::softmax;
      case GELU -> CpuKernels::gelu;
    };
  }

  private static Runnable attention(CpuOps ops, Problem problem, TensorArena arena, Tensor out) {
    AttentionInput in = allRows(ops, problem, arena);
    Tensor lse = arena.allocate(in.batch().rows(), in.kv().heads());
    return () -> ops.attention(in, out, lse);
  }

  private static Runnable decodeAttention(
      CpuOps ops, Problem problem, TensorArena arena, Tensor out) {
    AttentionInput all = allRows(ops, problem, arena);
    int last = all.batch().rows() - 1;
    AttentionInput in =
        new AttentionInput(
            all.qkv().rows(last, 1),
            Batch.sequence(0, last, 0),
            all.kv(),
            0,
            all.scale(),
            Mask.CAUSAL);
    Tensor lse = arena.allocate(1, all.kv().heads());
    return () -> ops.attention(in, out, lse);
  }

  private static Runnable map(CpuOps ops, Problem problem, TensorArena arena, Tensor out) {
    AttentionInput in = allRows(ops, problem, arena);
    int rows = in.batch().rows();
    int heads = in.kv().heads();
    Tensor lse = arena.allocate(rows, heads);
    ops.attention(in, arena.allocate(rows, heads * in.kv().headDim()), lse);
    int[] all = IntStream.range(0, heads).toArray();
    return () -> ops.probabilities(in, lse, all, 0, rows, out);
  }

  /** All rows, with their keys and values in the cache, where the model puts them earlier too. */
  private static AttentionInput allRows(CpuOps ops, Problem problem, TensorArena arena) {
    Shape shape = problem.shape();
    int rows = shape.size("T");
    KvCache kv = new KvCache(arena, 1, shape.size("H"), shape.size("D"), 1, rows);
    Batch batch = Batch.sequence(0, 0, new int[rows]);
    kv.extend(batch);
    Tensor qkv = tensor(arena, rows, problem.x());
    AttentionInput in = new AttentionInput(qkv, batch, kv, 0, problem.scale(), Mask.CAUSAL);
    new CpuParts(ops).appendKv(in);
    return in;
  }

  private static Runnable linear(CpuOps ops, Problem problem, TensorArena arena, Tensor out) {
    List<Long> shape = List.of((long) problem.shape().size("K"), (long) problem.shape().size("N"));
    MemorySegment elements = MemorySegment.ofArray(problem.weight());
    StoredTensor stored = new StoredTensor("weight", DType.F32, shape, elements);
    Linear w = new Linear(arena.weight(stored), tensor(arena, 1, problem.bias()));
    Tensor x = tensor(arena, problem.shape().size("M"), problem.x());
    CpuParts parts = new CpuParts(ops);
    return () -> parts.linear(x, w, out);
  }

  private static Runnable layerNorm(CpuOps ops, Problem problem, TensorArena arena, Tensor out) {
    Tensor x = tensor(arena, problem.shape().size("R"), problem.x());
    LayerNorm norm =
        new LayerNorm(
            tensor(arena, 1, problem.weight()),
            tensor(arena, 1, problem.bias()),
            problem.epsilon());
    return () -> ops.layerNorm(x, norm, out);
  }

  private static Runnable softmax(CpuOps ops, Problem problem, TensorArena arena, Tensor out) {
    Tensor x = tensor(arena, problem.shape().size("R"), problem.x());
    CpuParts parts = new CpuParts(ops);
    return () -> parts.softmax(x, out);
  }

  private static Runnable gelu(CpuOps ops, Problem problem, TensorArena arena, Tensor out) {
    Tensor x = tensor(arena, problem.shape().size("R"), problem.x());
    CpuParts parts = new CpuParts(ops);
    return () -> parts.activate(Activation.GELU_NEW, x, out);
  }

  private static Tensor tensor(TensorArena arena, int rows, float[] values) {
    Tensor tensor = arena.allocate(rows, values.length / rows);
    MemorySegment.copy(values, 0, tensor.data(), CpuCandidate.F32, 0, values.length);
    return tensor;
  }
}
