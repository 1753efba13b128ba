package dev.loupe.ops.cpu;

import dev.loupe.ops.Attention;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Tensor;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Attention of the heads of a batch: the work of one head and one block of rows, by online softmax
 * over tiles of keys. A head of keys is [capacity / 16, D, 16], so that one vector load takes one
 * component of 16 neighbouring keys; a head of values is [capacity, D].
 */
final class AttentionTask implements WorkerPool.Body {
  private final Scratch[] scratch;
  @Nullable Attention in;
  Tensor y = CpuOps.NONE;

  /**
   * @param scratch of each worker
   */
  AttentionTask(Scratch[] scratch) {
    this.scratch = scratch;
  }

  @Override
  public void run(int i, int worker) {
    Attention input = Objects.requireNonNull(in);
    int heads = input.kv().heads();
    attendBlock(input, i % heads, i / heads, y, scratch[worker]);
  }

  /** Brings the keys and values of one head to the cache. */
  static final class Appending implements WorkerPool.Body {
    @Nullable Attention in;

    @Override
    public void run(int i, int worker) {
      append(Objects.requireNonNull(in), i);
    }
  }

  static void append(Attention in, int head) {
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

  /** One head of one block of rows: every tile of keys is visited once, for all rows. */
  private static void attendBlock(Attention in, int head, int block, Tensor y, Scratch s) {
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
      in.lse().data().set(ScalarLoops.F32, in.lse().offset(first + i, head), logSum);
    }
  }

  /** Rows {@code i .. i + rows - 1} of a block against one tile: online softmax, then values. */
  private static void attendTile(
      Attention in, int head, int first, int i, int rows, int tile, Scratch s) {
    int d = in.kv().headDim();
    MemorySegment output = s.output(0);
    scoreTile(in, head, first + i, rows, tile, s);
    for (int m = 0; m < rows; m++) {
      int n = visible(in, first + i + m, tile);
      float before = s.max[i + m];
      float max = s.loops.scaleScores(s.scores, Scratch.SCORES * m, n, in.scale(), before);
      float factor = max == before ? 1 : ScalarFunctions.exp(before - max); // 0 at the first tile
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
  static int visible(Attention in, int row, int tile) {
    return Math.clamp(in.keys(row) - (long) tile, 0, InnerLoops.KEYS);
  }

  private static int cacheRow(Attention in, int head, int row) {
    return in.batch().sequence(row) * in.kv().heads() + head;
  }

  /** q . k of some rows of one sequence with each key of a tile, into the scratch's scores. */
  static void scoreTile(Attention in, int head, int row, int rows, int tile, Scratch s) {
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
}
