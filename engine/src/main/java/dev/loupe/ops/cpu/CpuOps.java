package dev.loupe.ops.cpu;

import dev.loupe.ops.AttentionInput;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.LayerNorm;
import dev.loupe.ops.Linear;
import dev.loupe.ops.Ops;
import dev.loupe.ops.Precision;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.ops.Weight;
import dev.loupe.weights.Activation;
import dev.loupe.weights.DType;
import dev.loupe.weights.StoredTensor;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Locale;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * The operations on the CPU: what is split over which threads, tile by tile; the arithmetic itself
 * is in {@link InnerLoops}. Work is split by outputs and never within a sum, so the number of
 * threads does not change a bit of the result.
 */
public final class CpuOps implements Ops {
  private static final Tensor NONE = new Tensor(DType.F32, 0, 0, MemorySegment.NULL);

  /** Most rows that stream weights together: eight fill a tile, which then takes less time. */
  static final int FEW = 7;

  private static final int SHORT = 4096; // elements; a loop shared out takes microseconds more

  private final Team team;
  private final Arena arena = Arena.ofShared();
  private final Scratch[] scratch;
  private final Normalising normalising = new Normalising();
  private final Product product = new Product();
  private final Appending appending = new Appending();
  private final Attending attending = new Attending();
  private final Panels.@Nullable Type weights; // null: what the checkpoint has
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
    team = new Team(threads);
    weights =
        switch (precision) {
          case F32 -> null;
          case F16 -> Panels.Type.F16;
          case BF16 -> Panels.Type.BF16;
          case INT8 -> Panels.Type.INT8;
        };
    scratch = new Scratch[threads];
    this.loops = loops;
    Arrays.setAll(scratch, i -> new Scratch(loops.another(), arena));
  }

  /** A task of an operation, with what its worker has for itself. */
  interface Task {
    void run(int i, Scratch scratch);
  }

  /** Runs tasks 0 .. n - 1 on the team. */
  void run(int n, Task task) {
    team.run(n, (i, worker) -> task.run(i, scratch[worker]));
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
    int columns = loops.tileColumns();
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

  @Override
  public void layerNorm(Tensor x, LayerNorm norm, Tensor out) {
    same("rows", out.rows(), x.rows());
    same("width", out.cols(), x.cols());
    same("width", norm.weight().cols(), x.cols());
    synchronized (team) {
      normalising.x = x;
      normalising.norm = norm;
      normalising.out = out;
      if (isShort(x.rows(), x.cols())) {
        for (int row = 0; row < x.rows(); row++) {
          normalising.run(row, 0);
        }
      } else {
        team.run(x.rows(), normalising);
      }
    }
  }

  /** Whether touching each element of so many rows once takes less time than sharing them out. */
  private static boolean isShort(int rows, int width) {
    return (long) rows * width <= SHORT;
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
    synchronized (team) {
      Product p = product;
      p.x = x;
      p.w = w;
      p.bias = bias;
      p.f = f;
      p.accumulate = accumulate;
      p.out = out;
      p.few = x.rows() <= FEW;
      p.each = p.few ? Math.clamp(w.count() / (2L * team.workers()), 1, InnerLoops.STREAMS) : 1;
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
    private boolean few; // rows, which stream weights
    private int each; // panels of a task

    @Override
    public void run(int i, int worker) {
      if (few) {
        stream(i * each, Math.min(each, w.count() - i * each), scratch[worker]);
      } else {
        tiles(i, scratch[worker]);
      }
    }

    /**
     * Some panels by a few rows: each weight is read once, from several places at a time. Several
     * rows take turns, with so many inputs as stay in the cache until all have had theirs.
     */
    private void stream(int panel, int panels, Scratch s) {
      int first = panel * w.columns();
      int n = Math.min(panels * w.columns(), w.out() - first);
      long row = 4L * InnerLoops.STREAMS * w.columns();
      start(first, n, s.sums);
      for (int m = 1; m < x.rows(); m++) {
        MemorySegment.copy(s.sums, 0, s.sums, row * m, 4L * n);
      }
      int turn = x.rows() == 1 ? w.in() : Panels.GROUP;
      for (int k = 0; k < w.in(); k += turn) {
        int inputs = Math.min(turn, w.in() - k);
        for (int m = 0; m < x.rows(); m++) {
          s.loops.multiplyOne(
              x.data(), x.offset(m, k), w, panel, panels, k, inputs, s.sums, row * m);
        }
      }
      for (int m = 0; m < x.rows(); m++) {
        finish(s.sums, row * m, false, m, first, n, s.loops);
      }
    }

    /** A panel by many rows; it stays in the cache meanwhile. */
    private void tiles(int panel, Scratch s) {
      MemorySegment wide = w.data();
      long offset = w.offset(panel);
      if (w.type() != Panels.Type.F32) {
        wide = s.panel((long) w.in() * w.columns());
        offset = 0;
        s.loops.widen(w, panel, wide);
      }
      int first = panel * w.columns();
      start(first, Math.min(w.columns(), w.out() - first), s.sums);
      for (int m = 0; m < x.rows(); m += s.loops.tileRows()) {
        tile(m, Math.min(s.loops.tileRows(), x.rows() - m), panel, wide, offset, s);
      }
    }

    private void tile(int m, int rows, int panel, MemorySegment wide, long offset, Scratch s) {
      int columns = w.columns();
      int first = panel * columns;
      int n = Math.min(columns, w.out() - first);
      boolean direct = !accumulate && n == columns; // else the sums need a place of their own
      MemorySegment tile = direct ? out.data() : s.tile;
      long stride = direct ? 4L * out.cols() : 4L * columns;
      long at = direct ? out.offset(m, first) : 0;
      if (w.type() == Panels.Type.INT8) {
        multiplyGroups(m, rows, panel, wide, tile, at, stride, s);
      } else {
        long width = 4L * columns;
        s.loops.multiplyTile(
            x.data(),
            x.offset(m, 0),
            4L * x.cols(),
            rows,
            w.in(),
            wide,
            offset,
            offset + width / 2,
            width,
            s.sums,
            tile,
            at,
            stride);
      }
      for (int i = 0; i < rows; i++) {
        finish(tile, at + stride * i, direct, m + i, first, n, s.loops);
      }
    }

    /** The sums of each group of inputs, scaled, then added, in the order of one row's product. */
    private void multiplyGroups(
        int m,
        int rows,
        int panel,
        MemorySegment wide,
        MemorySegment tile,
        long at,
        long stride,
        Scratch s) {
      long width = 4L * w.columns();
      for (int i = 0; i < rows; i++) {
        MemorySegment.copy(s.sums, 0, tile, at + stride * i, width);
      }
      for (int k = 0; k < w.in(); k += Panels.GROUP) {
        s.loops.multiplyTile(
            x.data(),
            x.offset(m, k),
            4L * x.cols(),
            rows,
            Math.min(Panels.GROUP, w.in() - k),
            wide,
            width * k,
            width * k + width / 2,
            width,
            s.zeros,
            s.part,
            0,
            width);
        long scales = w.scaleOffset(panel, k / Panels.GROUP);
        s.loops.addScaled(s.part, 0, rows, w.scales(), scales, tile, at, stride);
      }
    }

    /** What the sums of {@code n} outputs start from. */
    private void start(int first, int n, MemorySegment sums) {
      Tensor from = bias;
      if (from == null) {
        sums.fill((byte) 0);
      } else {
        MemorySegment.copy(from.data(), 4L * first, sums, 0, 4L * n);
      }
    }

    /** Brings finished sums to their place, unless they are there already. */
    private void finish(
        MemorySegment sums, long at, boolean there, int row, int first, int n, InnerLoops loops) {
      long to = out.offset(row, first);
      if (accumulate) {
        loops.scaleAdd(out.data(), to, 1, sums, at, n);
        return;
      }
      if (!there) {
        MemorySegment.copy(sums, at, out.data(), to, 4L * n);
      }
      Activation g = f;
      if (g != null) {
        loops.activate(g, out.data(), to, n);
      }
    }
  }

  // A head of keys is [capacity / 16, D, 16], so that one vector load takes one component of 16
  // neighbouring keys; a head of values is [capacity, D].
  void appendKv(AttentionInput in) {
    synchronized (team) {
      int heads = in.kv().heads();
      if (isShort(in.batch().rows(), heads * in.kv().headDim())) {
        for (int head = 0; head < heads; head++) {
          append(in, head);
        }
      } else {
        appending.in = in;
        team.run(heads, appending);
        appending.in = null;
      }
    }
  }

  private static final class Appending implements Team.Body {
    private @Nullable AttentionInput in;

    @Override
    public void run(int i, int worker) {
      append(Objects.requireNonNull(in), i);
    }
  }

  private static void append(AttentionInput in, int head) {
    KvCache kv = in.kv();
    MemorySegment qkv = in.qkv().data();
    Tensor keys = kv.keys(in.layer());
    Tensor values = kv.values(in.layer());
    int d = kv.headDim();
    int width = kv.heads() * d;
    for (int r = 0; r < in.batch().rows(); r++) {
      int position = in.batch().position(r);
      int row = in.batch().sequence(r) * kv.heads() + head;
      int group = position / InnerLoops.LANES * InnerLoops.LANES * d;
      long column = keys.offset(row, group + position % InnerLoops.LANES);
      long key = in.qkv().offset(r, width + head * d);
      for (int i = 0; i < d; i++) {
        float k = qkv.get(ScalarLoops.F32, key + 4L * i);
        keys.data().set(ScalarLoops.F32, column + 4L * InnerLoops.LANES * i, k);
      }
      long value = in.qkv().offset(r, 2 * width + head * d);
      MemorySegment.copy(qkv, value, values.data(), values.offset(row, position * d), 4L * d);
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
    s.output((long) Batch.BLOCK_ROWS * d).fill((byte) 0);
    Arrays.fill(s.max, Float.NEGATIVE_INFINITY);
    s.denominators.fill((byte) 0);
    for (int tile = 0; tile < in.keys(first + rows - 1); tile += InnerLoops.KEYS) {
      for (int i = 0; i < rows; i += s.loops.tileRows()) {
        int some = Math.min(s.loops.tileRows(), rows - i);
        if (in.keys(first + i + some - 1) > tile) { // else the mask hides it from all of them
          attendTile(in, head, first, i, some, tile, s);
        }
      }
    }
    for (int i = 0; i < rows; i++) {
      float denominator = s.sum(s.denominators, i);
      float factor = 1 / denominator;
      long to = y.offset(first + i, head * d);
      s.loops.scale(s.output(0), 4L * d * i, d, factor, y.data(), to);
      float logSum = (float) (s.max[i] + Math.log(denominator));
      lse.data().set(ScalarLoops.F32, lse.offset(first + i, head), logSum);
    }
  }

  /** Rows {@code i .. i + rows - 1} of a block against one tile: online softmax, then values. */
  private static void attendTile(
      AttentionInput in, int head, int first, int i, int rows, int tile, Scratch s) {
    int d = in.kv().headDim();
    MemorySegment output = s.output(0);
    scoreTile(in, head, first + i, rows, tile, s);
    for (int m = 0; m < rows; m++) {
      int n = visible(in, first + i + m, tile);
      float before = s.max[i + m];
      float max = s.loops.scaleScores(s.scores, Scratch.SCORES * m, n, in.scale(), before);
      float factor = max == before ? 1 : ScalarLoops.exp(before - max); // 0 at the first tile
      s.loops.exponentials(
          s.scores, Scratch.SCORES * m, max, factor, s.denominators, Scratch.LANES * (i + m));
      s.max[i + m] = max;
      s.factors[m] = factor;
    }
    Tensor values = in.kv().values(in.layer());
    long v = values.offset(cacheRow(in, head, first), tile * d);
    int keys = visible(in, first + i + rows - 1, tile);
    int columns = s.loops.tileColumns();
    for (int c = 0; c < d; c += columns) {
      int n = Math.min(columns, d - c);
      weighValues(rows, keys, values.data(), v + 4L * c, d, n, s);
      for (int m = 0; m < rows; m++) {
        long to = 4L * ((long) (i + m) * d + c);
        s.loops.scaleAdd(output, to, s.factors[m], s.tile, 4L * columns * m, n);
      }
    }
  }

  /** The scratch's tile = scores . values, {@code n} components of them. */
  private static void weighValues(
      int rows, int keys, MemorySegment values, long v, int d, int n, Scratch s) {
    int columns = s.loops.tileColumns();
    long width = 4L * columns;
    if (n == columns) {
      s.loops.multiplyTile(
          s.scores,
          0,
          Scratch.SCORES,
          rows,
          keys,
          values,
          v,
          v + width / 2,
          4L * d,
          s.zeros,
          s.tile,
          0,
          width);
      return;
    }
    for (int m = 0; m < rows; m++) { // the end of a head that is no multiple of a tile
      for (int j = 0; j < n; j++) {
        float sum =
            ScalarLoops.multiply(s.scores, Scratch.SCORES * m, keys, values, v + 4L * j, 4L * d, 0);
        s.tile.set(ScalarLoops.F32, width * m + 4L * j, sum);
      }
    }
  }

  /** Of a tile's keys those that a row sees. */
  private static int visible(AttentionInput in, int row, int tile) {
    return Math.clamp(in.keys(row) - (long) tile, 0, InnerLoops.KEYS);
  }

  private static int cacheRow(AttentionInput in, int head, int row) {
    return in.batch().sequence(row) * in.kv().heads() + head;
  }

  /** q . k of some rows of one sequence with each key of a tile, into the scratch's scores. */
  private static void scoreTile(
      AttentionInput in, int head, int row, int rows, int tile, Scratch s) {
    int d = in.kv().headDim();
    Tensor keys = in.kv().keys(in.layer());
    long cell = keys.offset(cacheRow(in, head, row), tile * d);
    int columns = s.loops.tileColumns();
    int seen = visible(in, row + rows - 1, tile); // the others are hidden, whatever they hold
    for (int j = 0; j < seen; j += columns) {
      s.loops.multiplyTile(
          in.qkv().data(),
          in.qkv().offset(row, head * d),
          4L * in.qkv().cols(),
          rows,
          d,
          keys.data(),
          cell + column(j, d),
          cell + column(j + columns / 2, d),
          4L * InnerLoops.LANES,
          s.zeros,
          s.scores,
          4L * j,
          Scratch.SCORES);
    }
  }

  /** Where the first component of a tile's key {@code j} lies, in bytes. */
  private static long column(int j, int d) {
    return 4L * ((long) j / InnerLoops.LANES * InnerLoops.LANES * d + j % InnerLoops.LANES);
  }

  @Override
  public void probabilities(
      AttentionInput in, Tensor lse, int[] heads, int firstRow, int rows, Tensor out) {
    checkMap(in, heads, firstRow, rows, out);
    map(in, lse, heads, firstRow, rows, out);
  }

  @Override
  public void scores(AttentionInput in, int[] heads, int firstRow, int rows, Tensor out) {
    checkMap(in, heads, firstRow, rows, out);
    map(in, null, heads, firstRow, rows, out);
  }

  /** Rows of scores; of probabilities if their log-sum-exp is given. */
  private void map(
      AttentionInput in, @Nullable Tensor lse, int[] heads, int firstRow, int rows, Tensor out) {
    rebuild(
        in,
        heads,
        firstRow,
        rows,
        (head, row, n, to, s) -> mapRows(in, lse, head, row, n, out, to, s));
  }

  /** Some rows of one head and sequence, at most a tile; the results go to rows from {@code to}. */
  private interface Rebuild {
    void run(int head, int row, int rows, int to, Scratch s);
  }

  private void rebuild(AttentionInput in, int[] heads, int firstRow, int rows, Rebuild body) {
    int most = loops.tileRows();
    int groups = Math.ceilDiv(rows, most);
    team.run(
        heads.length * groups,
        (i, worker) -> {
          int begin = i % groups * most;
          int outRow = i / groups * rows + begin;
          int end = Math.min(rows, begin + most);
          for (int r = begin; r < end; ) { // those of one sequence together
            int row = firstRow + r;
            int n = 1;
            while (r + n < end && in.batch().sequence(row + n) == in.batch().sequence(row)) {
              n++;
            }
            body.run(heads[i / groups], row, n, outRow + r - begin, scratch[worker]);
            r += n;
          }
        });
  }

  private static void mapRows(
      AttentionInput in,
      @Nullable Tensor lse,
      int head,
      int row,
      int rows,
      Tensor out,
      int outRow,
      Scratch s) {
    for (int tile = 0; tile < in.keys(row + rows - 1); tile += InnerLoops.KEYS) {
      scoreTile(in, head, row, rows, tile, s);
      for (int m = 0; m < rows; m++) {
        int n = visible(in, row + m, tile);
        if (n > 0) {
          weigh(in, lse, head, row + m, m, n, s);
          copy(s.scores, Scratch.SCORES * m, s.row, 0, n);
          out.dtype().encode(s.row, 0, n, out.data(), out.offset(outRow + m, tile));
        }
      }
    }
  }

  /** Scales row {@code m} of the scratch's scores; makes probabilities of them if lse is given. */
  private static void weigh(
      AttentionInput in, @Nullable Tensor lse, int head, int row, int m, int n, Scratch s) {
    s.loops.scaleScores(s.scores, Scratch.SCORES * m, n, in.scale(), Float.POSITIVE_INFINITY);
    if (lse != null) {
      float shift = lse.data().get(ScalarLoops.F32, lse.offset(row, head));
      s.loops.exponentials(s.scores, Scratch.SCORES * m, shift, 0, s.denominators, 0);
    }
  }

  @Override
  public void statistics(
      AttentionInput in, Tensor lse, int[] heads, int firstRow, int rows, int top, Tensor out) {
    checkRows(in, heads, firstRow, rows, out);
    same("columns", out.cols(), AttentionPlan.statisticsOf(top));
    rebuild(
        in,
        heads,
        firstRow,
        rows,
        (head, row, n, to, s) -> spreadRows(in, lse, head, row, n, top, out, to, s));
  }

  private static void spreadRows(
      AttentionInput in,
      Tensor lse,
      int head,
      int row,
      int rows,
      int top,
      Tensor out,
      int outRow,
      Scratch s) {
    s.spreads.fill((byte) 0);
    for (int m = 0; m < rows; m++) {
      Arrays.fill(s.statistics[m], 2, 2 + top, -1);
      Arrays.fill(s.statistics[m], 2 + top, 2 + 2 * top, 0);
    }
    for (int tile = 0; tile < in.keys(row + rows - 1); tile += InnerLoops.KEYS) {
      scoreTile(in, head, row, rows, tile, s);
      for (int m = 0; m < rows; m++) {
        int n = visible(in, row + m, tile);
        if (n > 0) {
          spread(in, lse, head, row + m, m, tile, n, top, s);
        }
      }
    }
    for (int m = 0; m < rows; m++) {
      float[] result = s.statistics[m];
      result[0] = 0 - s.sum(s.spreads, 2 * m); // 0 where it is -0
      result[1] = s.sum(s.spreads, 2 * m + 1);
      long to = out.offset(outRow + m, 0);
      MemorySegment.copy(result, 0, out.data(), ScalarLoops.F32, to, out.cols());
    }
  }

  /** What the first {@code n} keys of a tile add to the statistics of row {@code m} of it. */
  private static void spread(
      AttentionInput in,
      Tensor lse,
      int head,
      int row,
      int m,
      int tile,
      int n,
      int top,
      Scratch s) {
    weigh(in, null, head, row, m, n, s);
    float logSum = lse.data().get(ScalarLoops.F32, lse.offset(row, head));
    int distance = in.batch().position(row) - tile;
    float largest =
        s.loops.spread(
            s.scores, Scratch.SCORES * m, logSum, distance, s.spreads, 2 * Scratch.LANES * m);
    float[] result = s.statistics[m];
    float least = result[1 + 2 * top]; // of the top ones
    if (tile == 0 || largest > least) {
      copy(s.scores, Scratch.SCORES * m, s.row, 0, n);
      for (int i = 0; i < n; i++) {
        if (s.row[i] > least || tile + i < top) {
          rank(tile + i, s.row[i], top, result);
          least = result[1 + 2 * top];
        }
      }
    }
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
  public void logprobs(Tensor x, int[] ids, BitSet sayable, double[] out) {
    same("rows", x.rows(), ids.length);
    same("rows", x.rows(), out.length);
    for (int id : ids) {
      if (id >= x.cols()) {
        throw new IllegalArgumentException("token %d of %d".formatted(id, x.cols()));
      }
    }
    for (int[] gap : Ops.gaps(sayable, x.cols())) {
      for (int r = 0; r < ids.length; r++) {
        for (int v = gap[0]; v < gap[1]; v++) {
          x.data().set(ScalarLoops.F32, x.offset(r, v), Float.NEGATIVE_INFINITY);
        }
      }
    }
    team.run(
        ids.length,
        (r, worker) -> out[r] = ids[r] < 0 ? Double.NaN : logprob(x, r, ids[r], scratch[worker]));
  }

  private static double logprob(Tensor x, int row, int id, Scratch s) {
    float max = Float.NEGATIVE_INFINITY;
    for (int first = 0; first < x.cols(); first += InnerLoops.KEYS) {
      max = nextLogits(x, row, first, max, s);
    }
    double sum = 0;
    s.denominators.fill((byte) 0); // a NaN of another row would outlast the factor
    for (int first = 0; first < x.cols(); first += InnerLoops.KEYS) {
      float _ = nextLogits(x, row, first, max, s);
      s.loops.exponentials(s.scores, 0, max, 0, s.denominators, 0);
      sum += s.sum(s.denominators, 0);
    }
    return x.data().get(ScalarLoops.F32, x.offset(row, id)) - (max + Math.log(sum));
  }

  /** Brings some logits to the scratch's scores; the largest of them and {@code max}. */
  private static float nextLogits(Tensor x, int row, int first, float max, Scratch s) {
    int n = Math.min(InnerLoops.KEYS, x.cols() - first);
    MemorySegment.copy(x.data(), x.offset(row, first), s.scores, 0, 4L * n);
    return s.loops.scaleScores(s.scores, 0, n, 1, max);
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
            loops,
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
