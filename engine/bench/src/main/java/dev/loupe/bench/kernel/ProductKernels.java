package dev.loupe.bench.kernel;

import dev.loupe.ops.Attention;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.LayerNorm;
import dev.loupe.ops.Linear;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Precision;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.ops.cpu.CpuOps;
import dev.loupe.ops.cpu.CpuParts;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.util.List;
import java.util.stream.IntStream;

/** The product's own code for each operation. Public, since its copies are of other packages. */
public final class ProductKernels implements CpuBackend {
  private static final ValueLayout.OfFloat F32 =
      ValueLayout.JAVA_FLOAT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

  private final CpuOps ops;
  private final CpuParts parts;
  private final Tensor tiny;
  private final LayerNorm norm;

  /**
   * Starts its threads.
   *
   * @param threads at least 1
   * @param bits of a vector: 128, 256 or 512; 0 for plain loops
   */
  public ProductKernels(int threads, int bits, Precision precision) {
    ops =
        bits == 0
            ? CpuOps.withoutVectors(threads, precision)
            : new CpuOps(threads, precision, bits);
    parts = new CpuParts(ops);
    TensorArena arena = ops.arena(); // of ops, with which it goes
    tiny = arena.allocate(threads, 1);
    norm = new LayerNorm(arena.allocate(1, 1), arena.allocate(1, 1), 1);
  }

  @Override
  public String name() {
    return ops.device();
  }

  @Override
  public TensorArena arena() {
    return ops.arena();
  }

  @Override
  public void wake() {
    parts.layerNorm(tiny, norm, tiny);
  }

  @Override
  public void close() {
    ops.close();
  }

  @Override
  public Runnable kernel(Problem problem, TensorArena arena, Tensor out) {
    return switch (problem.shape().operation()) {
      case ATTENTION -> attention(problem, arena, out);
      case DECODE_ATTENTION -> decodeAttention(problem, arena, out);
      case MAP -> map(problem, arena, out);
      case LINEAR -> linear(problem, arena, out);
      case LAYERNORM -> layerNorm(problem, arena, out);
      case SOFTMAX -> softmax(problem, arena, out);
      case GELU -> gelu(problem, arena, out);
    };
  }

  private Runnable attention(Problem problem, TensorArena arena, Tensor out) {
    Attention attention = allRows(problem, arena);
    return () -> attention.attend(out);
  }

  private Runnable decodeAttention(Problem problem, TensorArena arena, Tensor out) {
    Attention all = allRows(problem, arena);
    all.pass().close();
    int last = all.batch().rows() - 1;
    all.kv().truncate(0, last);
    Attention attention =
        ops.begin(Batch.sequence(0, last, 0), all.kv(), Mask.CAUSAL)
            .attention(0, all.scale(), all.qkv().rows(last, 1), all.lse().rows(last, 1));
    return () -> attention.attend(out);
  }

  private Runnable map(Problem problem, TensorArena arena, Tensor out) {
    Attention attention = allRows(problem, arena);
    int rows = attention.batch().rows();
    int heads = attention.kv().heads();
    attention.attend(arena.allocate(rows, heads * attention.kv().headDim()));
    int[] all = IntStream.range(0, heads).toArray();
    return () -> attention.probabilities(all, 0, rows, out);
  }

  /** All rows, with their keys and values in the cache, where the model puts them earlier too. */
  private Attention allRows(Problem problem, TensorArena arena) {
    Shape shape = problem.shape();
    int rows = shape.size("T");
    KvCache kv = new KvCache(arena, 1, shape.size("H"), shape.size("D"), 1, rows);
    Batch batch = Batch.sequence(0, 0, new int[rows]);
    Tensor qkv = tensor(arena, rows, problem.x());
    Tensor lse = arena.allocate(rows, kv.heads());
    Attention attention = ops.begin(batch, kv, Mask.CAUSAL).attention(0, problem.scale(), qkv, lse);
    parts.appendKv(attention);
    return attention;
  }

  private Runnable linear(Problem problem, TensorArena arena, Tensor out) {
    List<Long> shape = List.of((long) problem.shape().size("K"), (long) problem.shape().size("N"));
    MemorySegment elements = MemorySegment.ofArray(problem.weight());
    StoredTensor stored = new StoredTensor("weight", DType.F32, shape, elements);
    Linear w = new Linear(arena.weight(stored), tensor(arena, 1, problem.bias()));
    Tensor x = tensor(arena, problem.shape().size("M"), problem.x());
    return () -> parts.linear(x, w, out);
  }

  private Runnable layerNorm(Problem problem, TensorArena arena, Tensor out) {
    Tensor x = tensor(arena, problem.shape().size("R"), problem.x());
    LayerNorm norm =
        new LayerNorm(
            tensor(arena, 1, problem.weight()),
            tensor(arena, 1, problem.bias()),
            problem.epsilon());
    return () -> parts.layerNorm(x, norm, out);
  }

  private Runnable softmax(Problem problem, TensorArena arena, Tensor out) {
    Tensor x = tensor(arena, problem.shape().size("R"), problem.x());
    return () -> parts.softmax(x, out);
  }

  private Runnable gelu(Problem problem, TensorArena arena, Tensor out) {
    Tensor x = tensor(arena, problem.shape().size("R"), problem.x());
    return () -> parts.activate(Activation.GELU_NEW, x, out);
  }

  private static Tensor tensor(TensorArena arena, int rows, float[] values) {
    Tensor tensor = arena.allocate(rows, values.length / rows);
    MemorySegment.copy(values, 0, tensor.data(), F32, 0, values.length);
    return tensor;
  }
}
