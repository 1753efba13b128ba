package dev.loupe.ops.cpu;

import dev.loupe.ops.AttentionInput;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.LayerNorm;
import dev.loupe.ops.Linear;
import dev.loupe.ops.Ops;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.weights.Activation;
import dev.loupe.weights.DType;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.function.Supplier;

/**
 * The operations on the CPU: what is split over which threads, tile by tile; the arithmetic itself
 * is in {@link InnerLoops}. Work is split by outputs and never within a sum, so the number of
 * threads does not change a bit of the result.
 */
public final class CpuOps implements Ops {
  /** Passes of at most this many rows stream the weights past them; more rows multiply by tiles. */
  static final int STREAM_ROWS = 4;

  /** Columns whose sums one streaming task keeps at hand. */
  static final int STREAM_COLUMNS = 2048;

  /** Vocabulary rows in one task of {@link #logits}; a multiple of 4. */
  private static final int LOGIT_ROWS = 256;

  private final Team team;
  private final Arena arena = Arena.ofShared();
  private final Scratch[] scratch;

  /**
   * The CPU with the widest vectors it has.
   *
   * @param threads threads to work with; at least 1
   */
  public CpuOps(int threads) {
    this(threads, InnerLoops::best);
  }

  CpuOps(int threads, Supplier<InnerLoops> loops) {
    if (threads < 1) {
      throw new IllegalArgumentException("%d threads; at least 1 is needed".formatted(threads));
    }
    team = new Team(threads);
    scratch = new Scratch[threads];
    Arrays.setAll(scratch, i -> new Scratch(loops.get(), arena));
  }

  @Override
  public TensorArena arena() {
    return new CpuArena();
  }

  @Override
  public void embed(Batch batch, Tensor wte, Tensor wpe, Tensor x) {
    int width = x.cols();
    same("rows", batch.rows(), x.rows());
    same("width", wte.cols(), width);
    same("width", wpe.cols(), width);
    team.run(
        batch.rows(),
        (r, worker) -> {
          float[] sum = scratch[worker].output(2 * width);
          wte.dtype().decode(wte.data(), wte.offset(batch.id(r), 0), sum, 0, width);
          wpe.dtype().decode(wpe.data(), wpe.offset(batch.position(r), 0), sum, width, width);
          for (int c = 0; c < width; c++) {
            x.data().set(ScalarLoops.F32, x.offset(r, c), sum[c] + sum[width + c]);
          }
        });
  }

  @Override
  public void layerNorm(Tensor x, LayerNorm norm, Tensor out) {
    int width = x.cols();
    same("rows", out.rows(), x.rows());
    same("width", out.cols(), width);
    same("width", norm.weight().cols(), width);
    team.run(
        x.rows(),
        (row, worker) -> {
          InnerLoops loops = scratch[worker].loops;
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
        });
  }

  @Override
  public void linear(Tensor x, Linear w, Activation f, Tensor out) {
    linear(x, w, out, false);
    team.run(
        out.rows(),
        (row, worker) ->
            scratch[worker].loops.activate(f, out.data(), out.offset(row, 0), out.cols()));
  }

  @Override
  public void qkv(Tensor x, Linear w, AttentionInput in) {
    linear(x, w, in.qkv(), false);
    appendKv(in);
  }

  @Override
  public void linearResidual(Tensor x, Linear w, Tensor acc) {
    linear(x, w, acc, true);
  }

  private void linear(Tensor x, Linear w, Tensor out, boolean accumulate) {
    same("inner width", x.cols(), w.weight().rows());
    same("rows", out.rows(), x.rows());
    same("width", out.cols(), w.weight().cols());
    int n = w.weight().cols();
    if (x.rows() <= STREAM_ROWS) {
      int workers = team.workers();
      int tasks = workers * Math.ceilDiv(n, workers * STREAM_COLUMNS);
      int columns = Math.ceilDiv(Math.ceilDiv(n, tasks), InnerLoops.LANES) * InnerLoops.LANES;
      team.run(
          Math.ceilDiv(n, columns),
          (i, worker) ->
              stream(
                  x,
                  w,
                  i * columns,
                  Math.min(columns, n - i * columns),
                  out,
                  accumulate,
                  scratch[worker]));
    } else {
      int columns = scratch[0].loops.tileColumns();
      team.run(
          Math.ceilDiv(n, columns),
          (i, worker) ->
              multiply(
                  x,
                  w,
                  i * columns,
                  Math.min(columns, n - i * columns),
                  out,
                  accumulate,
                  scratch[worker]));
    }
  }

  /** Columns n0 .. n0 + n - 1 of a few rows: each weight is read once, for all rows. */
  private static void stream(
      Tensor x, Linear w, int n0, int n, Tensor out, boolean accumulate, Scratch s) {
    Tensor weight = w.weight();
    boolean inPlace = weight.dtype() == DType.F32;
    MemorySegment source =
        inPlace ? weight.data() : s.panel((long) InnerLoops.STREAMS * STREAM_COLUMNS);
    long stride = inPlace ? 4L * weight.cols() : 4L * n;
    for (int m = 0; m < x.rows(); m++) {
      copy(w.bias().data(), 4L * n0, s.sums, m * STREAM_COLUMNS, n);
    }
    for (int k = 0; k < weight.rows(); k += InnerLoops.STREAMS) {
      int rows = Math.min(InnerLoops.STREAMS, weight.rows() - k);
      if (!inPlace) {
        for (int i = 0; i < rows; i++) {
          s.loops.widen(
              weight.dtype(), weight.data(), weight.offset(k + i, n0), n, source, stride * i);
        }
      }
      long start = inPlace ? weight.offset(k, n0) : 0;
      for (int m = 0; m < x.rows(); m++) {
        s.loops.addRows(
            x.data(), x.offset(m, k), rows, source, start, stride, n, s.sums, m * STREAM_COLUMNS);
      }
    }
    for (int m = 0; m < x.rows(); m++) {
      store(s.sums, m * STREAM_COLUMNS, n, out, m, n0, accumulate);
    }
  }

  /**
   * Columns n0 .. n0 + n - 1 of many rows: the columns are packed once, then stay in the cache.
   * What stands beyond column n of a tile is computed along and not stored.
   */
  private static void multiply(
      Tensor x, Linear w, int n0, int n, Tensor out, boolean accumulate, Scratch s) {
    Tensor weight = w.weight();
    int inner = weight.rows();
    int columns = s.loops.tileColumns();
    MemorySegment panel = s.panel((long) inner * columns);
    for (int k = 0; k < inner; k++) {
      long to = 4L * columns * k;
      if (weight.dtype() == DType.F32) {
        MemorySegment.copy(weight.data(), weight.offset(k, n0), panel, to, 4L * n);
      } else {
        s.loops.widen(weight.dtype(), weight.data(), weight.offset(k, n0), n, panel, to);
      }
    }
    for (int m = 0; m < x.rows(); m += InnerLoops.TILE_ROWS) {
      int rows = Math.min(InnerLoops.TILE_ROWS, x.rows() - m);
      for (int i = 0; i < rows; i++) {
        copy(w.bias().data(), 4L * n0, s.tile, i * columns, n);
      }
      s.loops.multiplyTile(x.data(), x.offset(m, 0), 4L * x.cols(), rows, inner, panel, s.tile);
      for (int i = 0; i < rows; i++) {
        store(s.tile, i * columns, n, out, m + i, n0, accumulate);
      }
    }
  }

  private static void store(
      float[] from, int offset, int n, Tensor out, int row, int column, boolean accumulate) {
    long to = out.offset(row, column);
    if (accumulate) {
      for (int j = 0; j < n; j++) {
        float sum = out.data().get(ScalarLoops.F32, to + 4L * j) + from[offset + j];
        out.data().set(ScalarLoops.F32, to + 4L * j, sum);
      }
    } else {
      MemorySegment.copy(from, offset, out.data(), ScalarLoops.F32, to, n);
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
    team.run(
        in.batch().blocks() * heads,
        (i, worker) -> attendBlock(in, i % heads, i / heads, y, lse, scratch[worker]));
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
  public void logits(Tensor x, Tensor table, Tensor out) {
    same("width", x.cols(), table.cols());
    same("rows", out.rows(), x.rows());
    same("vocabulary", out.cols(), table.rows());
    team.run(
        Math.ceilDiv(table.rows(), LOGIT_ROWS),
        (i, worker) -> logitRows(x, table, i * LOGIT_ROWS, out, scratch[worker]));
  }

  private static void logitRows(Tensor x, Tensor table, int first, Tensor out, Scratch s) {
    int width = table.cols();
    int end = Math.min(table.rows(), first + LOGIT_ROWS);
    for (int v = first; v < end; v += 4) {
      int rows = Math.min(4, end - v);
      MemorySegment source = table.data();
      long start = table.offset(v, 0);
      if (table.dtype() != DType.F32 || rows < 4) {
        source = s.panel(4L * width);
        s.loops.widen(table.dtype(), table.data(), start, rows * width, source, 0);
        start = 0;
      }
      for (int m = 0; m < x.rows(); m++) {
        s.loops.dotFour(x.data(), x.offset(m, 0), source, start, 4L * width, width, s.dots);
        MemorySegment.copy(s.dots, 0, out.data(), ScalarLoops.F32, out.offset(m, v), rows);
      }
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
    return "cpu, %s, %d thread%s"
        .formatted(scratch[0].loops, team.workers(), team.workers() == 1 ? "" : "s");
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
