package dev.loupe.ops.cpu;

import dev.loupe.weights.config.Activation;
import java.lang.foreign.MemorySegment;

/**
 * The loops in which the CPU spends its time, in two twins: {@link VectorLoops} on the Vector API
 * and {@link ScalarLoops} in plain Java where the incubator module is absent.
 *
 * <p>The twins give the same bits, on vectors of any width: every sum has one order. Sums along a
 * matrix's inner axis run from its first index to its last by fused multiply-add, one sum per
 * output; sums within one vector run in {@value #LANES} lanes (element i in lane i mod 16), which
 * are then folded in halves. (The Vector API's own reduceLanes promises no order.)
 *
 * <p>Offsets into segments are in bytes, all other counts in elements; segments hold little-endian
 * f32 unless a type is given. Callers see to it that the ranges are inside. An instance has scratch
 * of its own and serves one thread.
 */
interface InnerLoops {
  /** Lanes of the sums within one vector. */
  int LANES = 16;

  /** Keys in one tile of attention; the online softmax rescales after each tile. */
  int KEYS = 64;

  /** Panels that {@link #multiplyOne} takes at once: several streams keep memory busy. */
  int STREAMS = 4;

  // exp(x) = 2^n exp(r), n = round(x / ln 2), ln 2 in two parts so that r is exact (Cody and
  // Waite).
  float EXP_LOW = -87.33654f; // below it the result would be subnormal: 0
  float EXP_HIGH = 88.37626f; // above it 2^n would overflow: saturates
  float LOG2_E = 1.442695f;
  float LN2_HIGH = 0x1.63p-1f;
  float LN2_LOW = -2.1219444e-4f;
  float ROUNDER = 0x1.8p23f; // adding it rounds to an integer, which stands in the low bits

  /** Such loops for another thread. */
  InnerLoops another();

  /** Rows of the matrix-multiply tile: as many as registers hold the sums of. */
  int tileRows();

  /** Columns of the matrix-multiply tile, and of a panel: two hardware vectors. */
  int tileColumns();

  /**
   * dst = the elements of {@code panel} as f32, those of INT8 without their scales; exact.
   *
   * @param dst [in, tileColumns()]
   */
  void widen(Panels w, int panel, MemorySegment dst);

  /**
   * sums[j] += x[0] w[0, j] + x[1] w[1, j] + ..., in that order, for the columns of {@code panels}
   * panels and some of their inputs; of INT8 the sum of each group of inputs is scaled, then added.
   *
   * @param x [n] of these inputs, from {@code xOffset} on
   * @param panels at most {@value #STREAMS}
   * @param first the first input, a multiple of {@link Panels#GROUP}
   * @param n how many inputs
   * @param sums [panels, tileColumns()] from {@code at} on
   */
  void multiplyOne(
      MemorySegment x,
      long xOffset,
      Panels w,
      int panel,
      int panels,
      int first,
      int n,
      MemorySegment sums,
      long at);

  /**
   * tile[m, j] = start[j] + x[m, 0] w[0, j] + x[m, 1] w[1, j] + ..., in that order.
   *
   * @param xStride bytes from one row of x to the next
   * @param rows at most {@link #tileRows}
   * @param inner number of k
   * @param w [inner, tileColumns()]; the left half of a row begins at {@code left}, the right half
   *     at {@code right}
   * @param stride bytes from one row of w to the next
   * @param start [tileColumns()]
   * @param tile [rows, tileColumns()] from tileOffset on
   * @param tileStride bytes from one row of the tile to the next
   */
  void multiplyTile(
      MemorySegment x,
      long xOffset,
      long xStride,
      int rows,
      int inner,
      MemorySegment w,
      long left,
      long right,
      long stride,
      MemorySegment start,
      MemorySegment tile,
      long tileOffset,
      long tileStride);

  /** to[m, j] += from[m, j] scales[j] for {@code rows} rows of {@link #tileColumns}. */
  void addScaled(
      MemorySegment from,
      long fromOffset,
      int rows,
      MemorySegment scales,
      long scalesOffset,
      MemorySegment to,
      long toOffset,
      long toStride);

  /** to = to * factor + from. */
  void scaleAdd(
      MemorySegment to, long toOffset, float factor, MemorySegment from, long fromOffset, int n);

  /** to = x * factor. */
  void scale(MemorySegment x, long xOffset, int n, float factor, MemorySegment to, long at);

  /** Sum of x. */
  float sum(MemorySegment x, long xOffset, int n);

  /** Sum of (x - mean)^2. */
  float sumOfSquares(MemorySegment x, long xOffset, int n, float mean);

  /** out = (x - mean) * factor * weight + bias. */
  void normalise(
      MemorySegment x,
      long xOffset,
      int n,
      float mean,
      float factor,
      MemorySegment weight,
      MemorySegment bias,
      MemorySegment out,
      long outOffset);

  /** x = f(x). */
  void activate(Activation f, MemorySegment x, long xOffset, int n);

  /**
   * scores *= scale for the first {@code n} of {@value #KEYS} keys; the others are hidden, that is
   * minus infinity.
   *
   * @return the largest of them and {@code max}; a NaN is not noticed
   */
  float scaleScores(MemorySegment scores, long offset, int n, float scale, float max);

  /**
   * x = exp(x - shift) for {@value #KEYS} keys; lane i of sums = itself * factor + x[i] + x[i + 16]
   * + ...
   *
   * @param sums [LANES] from sumsOffset on
   */
  void exponentials(
      MemorySegment x, long offset, float shift, float factor, MemorySegment sums, long sumsOffset);

  /**
   * x = p = exp(x - logSum) for {@value #KEYS} keys; lane i of the first sum += p ln p of the keys
   * i, i + 16, ..., and lane i of the second += p |distance - key|.
   *
   * @param distance from key 0 to the row's own
   * @param sums [2, LANES] from sumsOffset on
   * @return the largest p; a NaN is not noticed
   */
  float spread(
      MemorySegment x,
      long offset,
      float logSum,
      int distance,
      MemorySegment sums,
      long sumsOffset);

  /**
   * The twin that this Java runtime allows: vectors if the module jdk.incubator.vector is there.
   *
   * @param vectorBits 128, 256 or 512; 0 for what Java prefers on this processor
   */
  static InnerLoops best(int vectorBits) {
    return ModuleLayer.boot().findModule("jdk.incubator.vector").isPresent()
        ? VectorLoops.ofWidth(vectorBits)
        : new ScalarLoops();
  }

  /** Folds {@value #LANES} lanes from {@code offset} on, in halves. */
  static float fold(float[] lanes, int offset) {
    for (int half = LANES / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; i++) {
        lanes[offset + i] += lanes[offset + i + half];
      }
    }
    return lanes[offset];
  }
}
