package dev.loupe.ops.cpu;

import dev.loupe.ops.Attention;
import dev.loupe.ops.Tensor;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/** Rebuilds rows of attention from the log-sum-exp: scores, probabilities, how they are spread. */
final class AttentionRows {
  private final WorkerPool pool;
  private final Scratch[] scratch;
  private final int tileRows;

  /**
   * @param scratch of each worker
   * @param tileRows rows of a tile of the loops
   */
  AttentionRows(WorkerPool pool, Scratch[] scratch, int tileRows) {
    this.pool = pool;
    this.scratch = scratch;
    this.tileRows = tileRows;
  }

  /** Rows of scores; of probabilities if their log-sum-exp is given. */
  void map(Attention in, @Nullable Tensor lse, int[] heads, int firstRow, int rows, Tensor out) {
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

  private void rebuild(Attention in, int[] heads, int firstRow, int rows, Rebuild body) {
    int most = tileRows;
    int groups = Math.ceilDiv(rows, most);
    pool.run(
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
      Attention in,
      @Nullable Tensor lse,
      int head,
      int row,
      int rows,
      Tensor out,
      int outRow,
      Scratch s) {
    for (int tile = 0; tile < in.keys(row + rows - 1); tile += InnerLoops.KEYS) {
      AttentionTask.scoreTile(in, head, row, rows, tile, s);
      for (int m = 0; m < rows; m++) {
        int n = AttentionTask.visible(in, row + m, tile);
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
      Attention in, @Nullable Tensor lse, int head, int row, int m, int n, Scratch s) {
    s.loops.scaleScores(s.scores, Scratch.SCORES * m, n, in.scale(), Float.POSITIVE_INFINITY);
    if (lse != null) {
      float shift = lse.data().get(ScalarLoops.F32, lse.offset(row, head));
      s.loops.exponentials(s.scores, Scratch.SCORES * m, shift, 0, s.denominators, 0);
    }
  }

  /** How rows are spread, see {@link Attention#statistics}; and the rows, if they have a place. */
  void statistics(
      Attention in,
      int[] heads,
      int firstRow,
      int rows,
      @Nullable Tensor map,
      int top,
      Tensor out) {
    rebuild(
        in,
        heads,
        firstRow,
        rows,
        (head, row, n, to, s) -> spreadRows(in, head, row, n, map, top, out, to, s));
  }

  private static void spreadRows(
      Attention in,
      int head,
      int row,
      int rows,
      @Nullable Tensor map,
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
      AttentionTask.scoreTile(in, head, row, rows, tile, s);
      for (int m = 0; m < rows; m++) {
        int n = AttentionTask.visible(in, row + m, tile);
        if (n > 0) {
          boolean ranks = spread(in, head, row + m, m, tile, n, top, s);
          if (ranks || map != null) {
            copy(s.scores, Scratch.SCORES * m, s.row, 0, n);
          }
          if (ranks) {
            rank(tile, n, top, s.row, s.statistics[m]);
          }
          if (map != null) {
            map.dtype().encode(s.row, 0, n, map.data(), map.offset(outRow + m, tile));
          }
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

  /**
   * Makes probabilities of the first {@code n} scores of row {@code m} of a tile, and adds to its
   * entropy and mean distance; true if one of them may be among the top ones.
   */
  private static boolean spread(
      Attention in, int head, int row, int m, int tile, int n, int top, Scratch s) {
    weigh(in, null, head, row, m, n, s);
    float logSum = in.lse().data().get(ScalarLoops.F32, in.lse().offset(row, head));
    int distance = in.batch().position(row) - tile;
    float largest =
        s.loops.spread(
            s.scores, Scratch.SCORES * m, logSum, distance, s.spreads, 2 * Scratch.LANES * m);
    return tile == 0 || largest > least(s.statistics[m], top);
  }

  /** The smallest of the top ones. */
  private static float least(float[] result, int top) {
    return result[1 + 2 * top];
  }

  /** Ranks the {@code n} probabilities of a tile. */
  private static void rank(int tile, int n, int top, float[] row, float[] result) {
    for (int i = 0; i < n; i++) {
      if (row[i] > least(result, top) || tile + i < top) {
        rank(tile + i, row[i], top, result);
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

  private static void copy(MemorySegment from, long offset, float[] into, int index, int n) {
    MemorySegment.copy(from, ScalarLoops.F32, offset, into, index, n);
  }
}
