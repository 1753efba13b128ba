package dev.loupe.ops.cpu;

import dev.loupe.ops.Attention;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.LayerNorm;
import dev.loupe.ops.Linear;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Ops;
import dev.loupe.ops.Pass;
import dev.loupe.ops.Precision;
import dev.loupe.ops.RebuiltRows;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.ops.Weight;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.Locale;
import org.jspecify.annotations.Nullable;

/**
 * The operations on the CPU: what is split over which threads, tile by tile; the arithmetic itself
 * is in {@link InnerLoops}. Work is split by outputs and never within a sum, so the number of
 * threads does not change a bit of the result.
 */
public final class CpuOps implements Ops {
  static final Tensor NONE = new Tensor(DType.F32, 0, 0, MemorySegment.NULL);

  /** Most rows that stream weights together: eight fill a tile, which then takes less time. */
  static final int FEW = 7;

  private static final int SHORT = 4096; // elements; a loop shared out takes microseconds more

  private final WorkerPool pool;
  private final Arena arena = Arena.ofShared();
  private final Scratch[] scratch;
  // tasks are used again, so that a decoding step allocates nothing; callers take turns
  private final NormTask normalising;
  private final MatmulTask product;
  private final AttentionTask.Appending appending = new AttentionTask.Appending();
  private final AttentionTask attending;
  private final AttentionRows attentionRows;
  private final Precision weights; // F32: what the checkpoint has
  private final InnerLoops loops;

  /**
   * The CPU with the widest vectors it has.
   *
   * @param threads threads to work with; at least 1
   */
  public CpuOps(int threads) {
    this(threads, Precision.F32, 0);
  }

  /**
   * Likewise.
   *
   * @param precision what weights are kept as; F32 keeps halves that the checkpoint has, which is
   *     exact
   * @param vectorBits 128, 256 or 512; 0 for what Java prefers on this processor
   */
  public CpuOps(int threads, Precision precision, int vectorBits) {
    this(threads, precision, InnerLoops.best(vectorBits));
  }

  /** Likewise on plain loops, which give the same bits: what vectors are worth. */
  public static CpuOps withoutVectors(int threads, Precision precision) {
    return new CpuOps(threads, precision, new ScalarLoops());
  }

  CpuOps(int threads, Precision precision, InnerLoops loops) {
    if (threads < 1) {
      throw new IllegalArgumentException("%d threads; at least 1 is needed".formatted(threads));
    }
    pool = new WorkerPool(threads);
    weights = precision;
    scratch = new Scratch[threads];
    this.loops = loops;
    Arrays.setAll(scratch, i -> new Scratch(loops.another(), arena));
    normalising = new NormTask(scratch);
    product = new MatmulTask(scratch);
    attending = new AttentionTask(scratch);
    attentionRows = new AttentionRows(pool, scratch, loops.tileRows());
  }

  /** A task of an operation, with what its worker has for itself. */
  interface Task {
    void run(int i, Scratch scratch);
  }

  /** Runs tasks 0 .. n - 1 on the pool. */
  void run(int n, Task task) {
    pool.run(n, (i, worker) -> task.run(i, scratch[worker]));
  }

  /** A weight of a checkpoint as panels for this machine's vectors. */
  Panels pack(StoredTensor stored, boolean rows, Arena arena) {
    Precision type = weights;
    if (type == Precision.F32) {
      type =
          switch (stored.dtype()) {
            case F64, F32 -> Precision.F32;
            case F16 -> Precision.F16;
            case BF16 -> Precision.BF16;
          };
    }
    int columns = loops.tileColumns();
    Panels panels =
        rows
            ? Panels.ofRows(stored, type, columns, arena, pool)
            : Panels.ofColumns(stored, type, columns, arena, pool);
    Pages.forget(stored.stored());
    return panels;
  }

  @Override
  public TensorArena arena() {
    return new CpuArena(this);
  }

  @Override
  public Pass begin(Batch batch, KvCache kv, Mask mask) {
    if (kv.lastPass() instanceof CpuPass last && last.beginsAgain(this, batch, mask)) {
      return last; // so a decoding step makes no new objects
    }
    return new CpuPass(this, batch, kv, mask);
  }

  /** {@link Pass#embed}. */
  void embed(Batch batch, Tensor wte, Tensor wpe, Tensor x) {
    int width = x.cols();
    same("rows", batch.rows(), x.rows());
    same("width", wte.cols(), width);
    same("width", wpe.cols(), width);
    synchronized (pool) { // one of the scratch; too short to be worth dividing
      float[] sum = scratch[0].embedding(2 * width);
      for (int r = 0; r < batch.rows(); r++) {
        wte.dtype().decode(wte.data(), wte.offset(batch.id(r), 0), sum, 0, width);
        wpe.dtype().decode(wpe.data(), wpe.offset(batch.position(r), 0), sum, width, width);
        for (int c = 0; c < width; c++) {
          x.data().set(ScalarLoops.F32, x.offset(r, c), sum[c] + sum[width + c]);
        }
      }
    }
  }

  /** {@link Pass#layerNorm}. */
  void layerNorm(Tensor x, LayerNorm norm, Tensor out) {
    same("rows", out.rows(), x.rows());
    same("width", out.cols(), x.cols());
    same("width", norm.weight().cols(), x.cols());
    synchronized (pool) {
      normalising.x = x;
      normalising.norm = norm;
      normalising.out = out;
      if (isShort(x.rows(), x.cols())) {
        for (int row = 0; row < x.rows(); row++) {
          normalising.run(row, 0);
        }
      } else {
        pool.run(x.rows(), normalising);
      }
    }
  }

  /** Whether doing so many rows takes less time than sharing them out. */
  private static boolean isShort(int rows, int width) {
    return (long) rows * width <= SHORT;
  }

  /** out = f(x . W + b), or out += x . W + b. */
  void multiply(
      Tensor x,
      Weight weight,
      @Nullable Tensor bias,
      @Nullable Activation f,
      boolean accumulate,
      Tensor out) {
    Panels w = (Panels) weight;
    same("inner width", x.cols(), w.in());
    same("rows", out.rows(), x.rows());
    same("width", out.cols(), w.out());
    synchronized (pool) {
      MatmulTask p = product;
      p.x = x;
      p.w = w;
      p.bias = bias;
      p.f = f;
      p.accumulate = accumulate;
      p.out = out;
      p.few = x.rows() <= FEW;
      p.each = p.few ? Math.clamp(w.count() / (2L * pool.workers()), 1, InnerLoops.STREAMS) : 1;
      pool.run(Math.ceilDiv(w.count(), p.each), p);
    }
  }

  /** The rows' keys and values go to the cache. */
  void appendKv(Attention in) {
    synchronized (pool) {
      int heads = in.kv().heads();
      if (isShort(in.batch().rows(), heads * in.kv().headDim())) {
        for (int head = 0; head < heads; head++) {
          AttentionTask.append(in, head);
        }
      } else {
        appending.in = in;
        pool.run(heads, appending);
        appending.in = null;
      }
    }
  }

  /** {@link Attention#attend}. */
  void attend(Attention in, Tensor y) {
    same("rows", y.rows(), in.batch().rows());
    same("width", y.cols(), in.kv().heads() * in.kv().headDim());
    synchronized (pool) {
      attending.in = in;
      attending.y = y;
      pool.run(in.batch().blocks() * in.kv().heads(), attending);
      attending.in = null;
    }
  }

  @Override
  public void logprobs(Tensor x, int[] ids, BitSet sayable, double[] out) {
    same("rows", x.rows(), ids.length);
    same("rows", x.rows(), out.length);
    CpuLogprobs.of(this, x, ids, sayable, out);
  }

  @Override
  public void copy(Tensor from, Tensor to) {
    same("rows", from.rows(), to.rows());
    same("width", from.cols(), to.cols());
    to.data().copyFrom(from.data());
  }

  @Override
  public void read(Tensor from, int row, float[] into, int count) {
    from.dtype().decode(from.data(), from.offset(row, 0), into, 0, count);
  }

  @Override
  public void write(float[] from, Tensor to) { // activations are f32 here
    to.data().copyFrom(MemorySegment.ofArray(from).asSlice(0, to.byteSize()));
  }

  @Override
  public String device() {
    return "cpu, %s, %d thread%s%s"
        .formatted(
            loops,
            pool.workers(),
            pool.workers() == 1 ? "" : "s",
            weights == Precision.F32
                ? ""
                : ", " + weights.name().toLowerCase(Locale.ROOT) + " weights");
  }

  @Override
  public void close() {
    pool.close();
    arena.close();
  }

  static void same(String what, int a, int b) {
    if (a != b) {
      throw new IllegalArgumentException("%s differ: %d and %d".formatted(what, a, b));
    }
  }

  /** A pass on the CPU, where every operation has ended when it returns. */
  private static final class CpuPass extends Pass {
    private final CpuOps ops;
    private final @Nullable OfLayer[] layers; // as they were asked for last

    CpuPass(CpuOps ops, Batch batch, KvCache kv, Mask mask) {
      super(batch, kv, mask);
      this.ops = ops;
      layers = new OfLayer[kv.layers()];
    }

    boolean beginsAgain(CpuOps other, Batch batch, Mask mask) {
      boolean same = ops == other && batch() == batch && mask() == mask;
      if (same) {
        beginAgain();
      }
      return same;
    }

    @Override
    public void embed(Tensor wte, Tensor wpe, Tensor x) {
      requireOpen();
      ops.embed(batch(), wte, wpe, x);
    }

    @Override
    public void layerNorm(Tensor x, LayerNorm norm, Tensor out) {
      requireOpen();
      ops.layerNorm(x, norm, out);
    }

    @Override
    public void linear(Tensor x, Linear w, Activation f, Tensor out) {
      requireOpen();
      ops.multiply(x, w.weight(), w.bias(), f, false, out);
    }

    @Override
    public void linearResidual(Tensor x, Linear w, Tensor acc) {
      requireOpen();
      ops.multiply(x, w.weight(), w.bias(), null, true, acc);
    }

    @Override
    public void logits(Tensor x, Weight head, Tensor out) {
      requireOpen();
      ops.multiply(x, head, null, null, false, out);
    }

    @Override
    public Attention attention(int layer, float scale, Tensor qkv, Tensor lse) {
      requireOpen();
      OfLayer last = layers[layer];
      if (last == null || !last.isOf(scale, qkv, lse) || qkv.rows() != batch().rows()) {
        last = new OfLayer(layer, scale, qkv, lse);
        layers[layer] = last;
      }
      return last;
    }

    private final class OfLayer extends Attention {
      OfLayer(int layer, float scale, Tensor qkv, Tensor lse) {
        super(CpuPass.this, layer, scale, qkv, lse);
      }

      boolean isOf(float scale, Tensor qkv, Tensor lse) {
        return scale() == scale && qkv().equals(qkv) && lse().equals(lse);
      }

      @Override
      public void project(Tensor x, Linear w) {
        requireOpen();
        ops.multiply(x, w.weight(), w.bias(), null, false, qkv());
        ops.appendKv(this);
      }

      @Override
      public void attend(Tensor y) {
        requireOpen();
        ops.attend(this, y);
      }

      @Override
      public RebuiltRows probabilities(int[] heads, int firstRow, int rows, Tensor out) {
        return map(lse(), heads, firstRow, rows, out);
      }

      @Override
      public RebuiltRows scores(int[] heads, int firstRow, int rows, Tensor out) {
        return map(null, heads, firstRow, rows, out);
      }

      private RebuiltRows map(
          @Nullable Tensor lse, int[] heads, int firstRow, int rows, Tensor out) {
        requireMap(heads, firstRow, rows, out);
        ops.attentionRows.map(this, lse, heads, firstRow, rows, out);
        return (row, into, count) -> ops.read(out, row, into, count);
      }

      @Override
      public RebuiltRows statistics(int[] heads, int firstRow, int rows, int top, Tensor out) {
        requireRows(heads, firstRow, rows, out);
        same("columns", out.cols(), AttentionPlan.statisticsOf(top));
        ops.attentionRows.statistics(this, heads, firstRow, rows, null, top, out);
        return (row, into, count) -> ops.read(out, row, into, count);
      }

      @Override
      public List<RebuiltRows> probabilitiesAndStatistics(
          int[] heads, int firstRow, int rows, Tensor out, int top, Tensor spread) {
        requireMap(heads, firstRow, rows, out);
        requireRows(heads, firstRow, rows, spread);
        same("columns", spread.cols(), AttentionPlan.statisticsOf(top));
        ops.attentionRows.statistics(this, heads, firstRow, rows, out, top, spread);
        return List.of(
            (row, into, count) -> ops.read(out, row, into, count),
            (row, into, count) -> ops.read(spread, row, into, count));
      }
    }
  }
}
