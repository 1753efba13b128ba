package dev.loupe.ops.cpu;

import dev.loupe.ops.Precision;
import dev.loupe.ops.Tensor;
import dev.loupe.weights.config.Activation;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** out = f(x . w + bias), or out += x . w + bias: the work of each panel of the weight. */
final class MatmulTask implements WorkerPool.Body {
  private final Scratch[] scratch;
  Tensor x = CpuOps.NONE;
  Panels w = Panels.NONE;
  @Nullable Tensor bias;
  @Nullable Activation f;
  boolean accumulate;
  Tensor out = CpuOps.NONE;
  boolean few; // rows, which stream weights
  int each; // panels of a task

  /**
   * @param scratch of each worker
   */
  MatmulTask(Scratch[] scratch) {
    this.scratch = scratch;
  }

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
        s.loops.multiplyOne(x.data(), x.offset(m, k), w, panel, panels, k, inputs, s.sums, row * m);
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
    if (w.type() != Precision.F32) {
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
    if (w.type() == Precision.INT8) {
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
