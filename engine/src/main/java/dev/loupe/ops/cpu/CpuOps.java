package dev.loupe.ops.cpu;

import dev.loupe.Precision;
import dev.loupe.ops.AttentionInput;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.LayerNorm;
import dev.loupe.ops.Linear;
import dev.loupe.ops.Ops;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.ops.Weight;
import dev.loupe.weights.Activation;
import dev.loupe.weights.DType;
import dev.loupe.weights.StoredTensor;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.Locale;
import java.util.Objects;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * The operations on the CPU: what is split over which threads, tile by tile; the arithmetic itself
 * is in {@link InnerLoops}. Work is split by outputs and never within a sum, so the number of
 * threads does not change a bit of the result.
 */
public final class CpuOps implements Ops {
  private static final Tensor NONE = new Tensor(DType.F32, 0, 0, MemorySegment.NULL);

  private final Team team;
  private final Arena arena = Arena.ofShared();
  private final Scratch[] scratch;
  private final Normalising normalising = new Normalising();
  private final Product product = new Product();
  private final Attending attending = new Attending();
  private final Panels.@Nullable Type weights; // null: what the checkpoint has

  /**
   * The CPU with the widest vectors it has.
   *
   * @param threads threads to work with; at least 1
   */
  public CpuOps(int threads) {
    this(threads, Precision.F32);
  }

  /**
   * Likewise.
   *
   * @param precision what weights are kept as; F32 keeps halves that the checkpoint has, which is
   *     exact
   */
  public CpuOps(int threads, Precision precision) {
    this(threads, precision, InnerLoops::best);
  }

  CpuOps(int threads, Precision precision, Supplier<InnerLoops> loops) {
    if (threads < 1) {
      throw new IllegalArgumentException("%d threads; at least 1 is needed".formatted(threads));
    }
    team = new Team(threads);
    weights =
        switch (precision) {
          case F32 -> null;
          case F16 -> Panels.Type.F16;
          case BF16 -> Panels.Type.BF16;
          case INT8 -> Panels.Type.INT8;
        };
    scratch = new Scratch[threads];
    Arrays.setAll(scratch, i -> new Scratch(loops.get(), arena));
  }

  /** A weight of a checkpoint as panels for this machine's vectors. */
  Panels pack(StoredTensor stored, boolean rows, Arena arena) {
    Panels.Type type = weights;
    if (type == null) {
      type =
          switch (stored.dtype()) {
            case F64, F32 -> Panels.Type.F32;
            case F16 -> Panels.Type.F16;
            case BF16 -> Panels.Type.BF16;
          };
    }
    int columns = scratch[0].loops.tileColumns();
    Panels panels =
        rows
            ? Panels.ofRows(stored, type, columns, arena, team)
            : Panels.ofColumns(stored, type, columns, arena, team);
    Pages.forget(stored.stored());
    return panels;
  }

  @Override
  public TensorArena arena() {
    return new CpuArena(this);
  }

  @Override
  public void embed(Batch batch, Tensor wte, Tensor wpe, Tensor x) {
    int width = x.cols();
    same("rows", batch.rows(), x.rows());
    same("width", wte.cols(), width);
    same("width", wpe.cols(), width);
    synchronized (team) { // one of the scratch; too short to be worth dividing
      float[] sum = scratch[0].output(2 * width);
      for (int r = 0; r < batch.rows(); r++) {
        wte.dtype().decode(wte.data(), wte.offset(batch.id(r), 0), sum, 0, width);
        wpe.dtype().decode(wpe.data(), wpe.offset(batch.position(r), 0), sum, width, width);
        for (int c = 0; c < width; c++) {
          x.data().set(ScalarLoops.F32, x.offset(r, c), sum[c] + sum[width + c]);
        }
      }
    }
  }

  @Override
  public void layerNorm(Tensor x, LayerNorm norm, Tensor out) {
    same("rows", out.rows(), x.rows());
    same("width", out.cols(), x.cols());
    same("width", norm.weight().cols(), x.cols());
    synchronized (team) {
      normalising.x = x;
      normalising.norm = norm;
      normalising.out = out;
      team.run(x.rows(), normalising);
    }
  }

  // What the tasks of an operation need lies in an object that is used again, so that a decoding
  // step allocates nothing; callers take turns, as they do with the team.

  private final class Normalising implements Team.Body {
    private Tensor x = NONE;
    private LayerNorm norm = new LayerNorm(NONE, NONE, 0);
    private Tensor out = NONE;

    @Override
    public void run(int row, int worker) {
      InnerLoops loops = scratch[worker].loops;
      int width = x.cols();
      long offset = x.offset(row, 0);
      float mean = loops.sum(x.data(), offset, width) / width;
      float variance = loops.sumOfSquares(x.data(), offset, width, mean) / width;
      float factor = (float) (1 / Math.sqrt(variance + (double) norm.epsilon()));
      loops.normalise(
          x.data(),
          offset,
          width,
          mean,
          factor,
          norm.weight().data(),
          norm.bias().data(),
          out.data(),
          out.offset(row, 0));
    }
  }

  @Override
  public void linear(Tensor x, Linear w, Activation f, Tensor out) {
    multiply(x, w.weight(), w.bias(), f, false, out);
  }

  @Override
  public void qkv(Tensor x, Linear w, AttentionInput in) {
    multiply(x, w.weight(), w.bias(), null, false, in.qkv());
    appendKv(in);
  }

  @Override
  public void linearResidual(Tensor x, Linear w, Tensor acc) {
    multiply(x, w.weight(), w.bias(), null, true, acc);
  }

  @Override
  public void logits(Tensor x, Weight head, Tensor out) {
    multiply(x, head, null, null, false, out);
  }

  private void multiply(
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
    synchronized (team) {
      Product p = product;
      p.x = x;
      p.w = w;
      p.bias = bias;
      p.f = f;
      p.accumulate = accumulate;
      p.out = out;
      p.each =
          x.rows() == 1 ? Math.clamp(w.count() / (2L * team.workers()), 1, InnerLoops.STREAMS) : 1;
      team.run(Math.ceilDiv(w.count(), p.each), p);
    }
  }

  /** out = f(x . w + bias), or out += x . w + bias. */
  private final class Product implements Team.Body {
    private Tensor x = NONE;
    private Panels w = Panels.NONE;
    private @Nullable Tensor bias;
    private @Nullable Activation f;
    private boolean accumulate;
    private Tensor out = NONE;
    private int each; // panels of a task

    @Override
    public void run(int i, int worker) {
      if (x.rows() == 1) {
        stream(i * each, Math.min(each, w.count() - i * each), scratch[worker]);
      } else {
        tiles(i, scratch[worker]);
      }
    }

    /** Some panels by one row: each weight is read once, from several places at a time. */
    private void stream(int panel, int panels, Scratch s) {
      int first = panel * w.columns();
      int n = Math.min(panels * w.columns(), w.out() - first);
      begin(first, n, s.sums, 0);
      s.loops.multiplyOne(x.data(), x.offset(0, 0), w, panel, panels, s.sums);
      end(s.sums, 0, 0, first, n, s.loops);
    }

    /** A panel by many rows; it stays in the cache meanwhile. */
    private void tiles(int panel, Scratch s) {
      int columns = w.columns();
      int first = panel * columns;
      int n = Math.min(columns, w.out() - first);
      MemorySegment wide = w.data();
      long start = w.offset(panel);
      if (w.type() != Panels.Type.F32) {
        wide = s.panel((long) w.in() * columns);
        start = 0;
        s.loops.widen(w, panel, wide);
      }
      for (int m = 0; m < x.rows(); m += s.loops.tileRows()) {
        int rows = Math.min(s.loops.tileRows(), x.rows() - m);
        for (int i = 0; i < rows; i++) {
          begin(first, n, s.tile, i * columns);
        }
        if (w.type() == Panels.Type.INT8) {
          addGroups(m, rows, panel, wide, s);
        } else {
          s.loops.multiplyTile(
              x.data(), x.offset(m, 0), 4L * x.cols(), rows, w.in(), wide, start, s.tile);
        }
        for (int i = 0; i < rows; i++) {
          end(s.tile, i * columns, m + i, first, n, s.loops);
        }
      }
    }

    /** Adds the sums of each group of inputs, scaled, in the order that one row's product has. */
    private void addGroups(int m, int rows, int panel, MemorySegment wide, Scratch s) {
      int columns = w.columns();
      for (int k = 0; k < w.in(); k += Panels.GROUP) {
        int n = Math.min(Panels.GROUP, w.in() - k);
        Arrays.fill(s.part, 0);
        s.loops.multiplyTile(
            x.data(), x.offset(m, k), 4L * x.cols(), rows, n, wide, 4L * columns * k, s.part);
        long scales = w.scaleOffset(panel, k / Panels.GROUP);
        InnerLoops.addScaled(s.part, 0, w.scales(), scales, rows, columns, s.tile, 0);
      }
    }

    private void begin(int first, int n, float[] sums, int at) {
      Tensor from = bias;
      if (from == null) {
        Arrays.fill(sums, at, at + n, 0);
      } else {
        copy(from.data(), 4L * first, sums, at, n);
      }
    }

    private void end(float[] sums, int at, int row, int first, int n, InnerLoops loops) {
      long to = out.offset(row, first);
      if (accumulate) {
        for (int j = 0; j < n; j++) {
          float sum = out.data().get(ScalarLoops.F32, to + 4L * j) + sums[at + j];
          out.data().set(ScalarLoops.F32, to + 4L * j, sum);
        }
        return;
      }
      MemorySegment.copy(sums, at, out.data(), ScalarLoops.F32, to, n);
      Activation g = f;
      if (g != null) {
        loops.activate(g, out.data(), to, n);
      }
    }
  }

  // A head of keys is [capacity / 16, D, 16], so that one vector load takes one component of 16
  // neighbouring keys; a head of values is [capacity, D].
  void appendKv(AttentionInput in) {
    KvCache kv = in.kv();
    Tensor qkv = in.qkv();
    Tensor keys = kv.keys(in.layer());
    Tensor values = kv.values(in.layer());
    int d = kv.headDim();
    int width = kv.heads() * d;
    for (int r = 0; r < qkv.rows(); r++) {
      int position = in.batch().position(r);
      for (int head = 0; head < kv.heads(); head++) {
        int row = in.batch().sequence(r) * kv.heads() + head;
        int group = position / InnerLoops.LANES * InnerLoops.LANES * d;
        long column = keys.offset(row, group + position % InnerLoops.LANES);
        for (int i = 0; i < d; i++) {
          float k = qkv.data().get(ScalarLoops.F32, qkv.offset(r, width + head * d + i));
          keys.data().set(ScalarLoops.F32, column + 4L * InnerLoops.LANES * i, k);
        }
        MemorySegment.copy(
            qkv.data(),
            qkv.offset(r, 2 * width + head * d),
            values.data(),
            values.offset(row, position * d),
            4L * d);
      }
    }
  }

  @Override
  public void attention(AttentionInput in, Tensor y, Tensor lse) {
    int heads = in.kv().heads();
    same("rows", y.rows(), in.batch().rows());
    same("width", y.cols(), heads * in.kv().headDim());
    same("rows", lse.rows(), in.batch().rows());
    same("heads", lse.cols(), heads);
    synchronized (team) {
      attending.in = in;
      attending.y = y;
      attending.lse = lse;
      team.run(in.batch().blocks() * heads, attending);
      attending.in = null;
    }
  }

  private final class Attending implements Team.Body {
    private @Nullable AttentionInput in;
    private Tensor y = NONE;
    private Tensor lse = NONE;

    @Override
    public void run(int i, int worker) {
      AttentionInput input = Objects.requireNonNull(in);
      int heads = input.kv().heads();
      attendBlock(input, i % heads, i / heads, y, lse, scratch[worker]);
    }
  }

  /** One head of one block of rows: every tile of keys is visited once, for all rows. */
  private static void attendBlock(
      AttentionInput in, int head, int block, Tensor y, Tensor lse, Scratch s) {
    Batch batch = in.batch();
    int first = batch.blockStart(block);
    int rows = batch.blockStart(block + 1) - first;
    int d = in.kv().headDim();
    Tensor keys = in.kv().keys(in.layer());
    Tensor values = in.kv().values(in.layer());
    int cacheRow = batch.sequence(first) * in.kv().heads() + head;
    float[] o = s.output(Batch.BLOCK_ROWS * d);
    Arrays.fill(o, 0, rows * d, 0);
    Arrays.fill(s.max, Float.NEGATIVE_INFINITY);
    Arrays.fill(s.denominator, 0);
    int longest = in.keys(first + rows - 1);
    for (int tile = 0; tile < longest; tile += InnerLoops.KEYS) {
      long cell = keys.offset(cacheRow, tile * d);
      for (int i = 0; i < rows; i++) {
        int n = Math.min(InnerLoops.KEYS, in.keys(first + i) - tile);
        if (n <= 0) {
          continue; // the mask hides this tile from this row
        }
        long q = in.qkv().offset(first + i, head * d);
        s.loops.scoreKeys(in.qkv().data(), q, d, keys.data(), cell, in.scale(), s.scores);
        float max = Math.max(s.max[i], s.loops.max(s.scores, n));
        float factor = ScalarLoops.exp(s.max[i] - max); // 0 at the first tile
        float sum = s.loops.exponentials(s.scores, n, max);
        s.denominator[i] = Math.fma(s.denominator[i], factor, sum);
        s.max[i] = max;
        s.loops.addValues(s.scores, n, values.data(), cell, d, factor, o, i * d);
      }
    }
    for (int i = 0; i < rows; i++) {
      for (int c = 0; c < d; c++) {
        y.data()
            .set(
                ScalarLoops.F32,
                y.offset(first + i, head * d + c),
                o[i * d + c] / s.denominator[i]);
      }
      float logSum = (float) (s.max[i] + Math.log(s.denominator[i]));
      lse.data().set(ScalarLoops.F32, lse.offset(first + i, head), logSum);
    }
  }

  @Override
  public void probabilities(
      AttentionInput in, Tensor lse, int[] heads, int firstRow, int rows, Tensor out) {
    checkMap(in, heads, firstRow, rows, out);
    team.run(
        heads.length * rows,
        (i, worker) -> {
          int head = heads[i / rows];
          int row = firstRow + i % rows;
          float shift = lse.data().get(ScalarLoops.F32, lse.offset(row, head));
          mapRow(in, head, row, out, i, scratch[worker], shift);
        });
  }

  @Override
  public void scores(AttentionInput in, int[] heads, int firstRow, int rows, Tensor out) {
    checkMap(in, heads, firstRow, rows, out);
    team.run(
        heads.length * rows,
        (i, worker) ->
            mapRow(in, heads[i / rows], firstRow + i % rows, out, i, scratch[worker], Float.NaN));
  }

  /** One row of scores; of probabilities if {@code shift}, the row's log-sum-exp, is a number. */
  private static void mapRow(
      AttentionInput in, int head, int row, Tensor out, int outRow, Scratch s, float shift) {
    for (int tile = 0; tile < in.keys(row); tile += InnerLoops.KEYS) {
      int n = mapTile(in, head, row, tile, s, shift);
      out.dtype().encode(s.scores, 0, n, out.data(), out.offset(outRow, tile));
    }
  }

  /** The keys of such a row from {@code tile} on, into the scratch's scores; returns how many. */
  private static int mapTile(
      AttentionInput in, int head, int row, int tile, Scratch s, float shift) {
    int d = in.kv().headDim();
    Tensor keys = in.kv().keys(in.layer());
    int cacheRow = in.batch().sequence(row) * in.kv().heads() + head;
    int n = Math.min(InnerLoops.KEYS, in.keys(row) - tile);
    s.loops.scoreKeys(
        in.qkv().data(),
        in.qkv().offset(row, head * d),
        d,
        keys.data(),
        keys.offset(cacheRow, tile * d),
        in.scale(),
        s.scores);
    if (!Float.isNaN(shift)) {
      s.loops.exponentials(s.scores, n, shift);
    }
    return n;
  }

  @Override
  public void statistics(
      AttentionInput in, Tensor lse, int[] heads, int firstRow, int rows, int top, Tensor out) {
    checkRows(in, heads, firstRow, rows, out);
    same("columns", out.cols(), AttentionPlan.statisticsOf(top));
    team.run(
        heads.length * rows,
        (i, worker) -> {
          int row = firstRow + i % rows;
          float[] result = scratch[worker].statistics;
          spread(in, lse, heads[i / rows], row, top, scratch[worker], result);
          MemorySegment.copy(result, 0, out.data(), ScalarLoops.F32, out.offset(i, 0), out.cols());
        });
  }

  private static void spread(
      AttentionInput in, Tensor lse, int head, int row, int top, Scratch s, float[] result) {
    float shift = lse.data().get(ScalarLoops.F32, lse.offset(row, head));
    int position = in.batch().position(row);
    double entropy = 0;
    double distance = 0;
    Arrays.fill(result, 2, 2 + top, -1);
    Arrays.fill(result, 2 + top, 2 + 2 * top, 0);
    for (int tile = 0; tile < in.keys(row); tile += InnerLoops.KEYS) {
      int n = mapTile(in, head, row, tile, s, shift);
      for (int i = 0; i < n; i++) {
        float p = s.scores[i];
        if (p > 0) {
          entropy -= p * Math.log(p);
          distance += p * Math.abs(position - tile - i);
        }
        rank(tile + i, p, top, result);
      }
    }
    result[0] = (float) entropy;
    result[1] = (float) distance;
  }

  /** Puts a key among the top ones, if it belongs there; equals stay in the order of their keys. */
  private static void rank(int key, float p, int top, float[] result) {
    int rank = Math.min(key, top);
    while (rank > 0 && p > result[2 + top + rank - 1]) {
      rank--;
    }
    if (rank < top) {
      int after = top - rank - 1;
      System.arraycopy(result, 2 + rank, result, 3 + rank, after);
      System.arraycopy(result, 2 + top + rank, result, 3 + top + rank, after);
      result[2 + rank] = key;
      result[2 + top + rank] = p;
    }
  }

  private static void checkMap(AttentionInput in, int[] heads, int firstRow, int rows, Tensor out) {
    checkRows(in, heads, firstRow, rows, out);
    for (int r = firstRow; r < firstRow + rows; r++) {
      if (out.cols() < in.keys(r)) {
        throw new IllegalArgumentException(
            "%d columns for %d keys".formatted(out.cols(), in.keys(r)));
      }
    }
  }

  private static void checkRows(
      AttentionInput in, int[] heads, int firstRow, int rows, Tensor out) {
    if (firstRow < 0 || rows < 0 || firstRow > in.batch().rows() - rows) {
      throw new IllegalArgumentException(
          "rows %d..%d of a batch of %d"
              .formatted(firstRow, firstRow + rows - 1, in.batch().rows()));
    }
    if (out.rows() < heads.length * rows) {
      throw new IllegalArgumentException(
          "%d rows for %d heads of %d rows".formatted(out.rows(), heads.length, rows));
    }
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
  public String device() {
    return "cpu, %s, %d thread%s%s"
        .formatted(
            scratch[0].loops,
            team.workers(),
            team.workers() == 1 ? "" : "s",
            weights == null ? "" : ", " + weights.name().toLowerCase(Locale.ROOT) + " weights");
  }

  @Override
  public void close() {
    team.close();
    arena.close();
  }

  private static void copy(MemorySegment from, long offset, float[] into, int index, int n) {
    MemorySegment.copy(from, ScalarLoops.F32, offset, into, index, n);
  }

  private static void same(String what, int a, int b) {
    if (a != b) {
      throw new IllegalArgumentException("%s differ: %d and %d".formatted(what, a, b));
    }
  }
}
