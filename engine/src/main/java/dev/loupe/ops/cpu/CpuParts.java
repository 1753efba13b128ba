package dev.loupe.ops.cpu;

import dev.loupe.ops.Attention;
import dev.loupe.ops.LayerNorm;
import dev.loupe.ops.Linear;
import dev.loupe.ops.Tensor;
import dev.loupe.weights.config.Activation;
import java.lang.foreign.MemorySegment;

/**
 * Operations that the model has only as parts of others, each for itself and by the same loops, so
 * that they can be measured.
 */
public final class CpuParts {
  private static final int PIECE = 1024; // elements of a task; in and out fit the nearest cache

  private final CpuOps ops;

  public CpuParts(CpuOps ops) {
    this.ops = ops;
  }

  /** out = x . W + b. */
  public void linear(Tensor x, Linear w, Tensor out) {
    ops.multiply(x, w.weight(), w.bias(), null, false, out);
  }

  /** As {@link dev.loupe.ops.Pass#layerNorm} has it. */
  public void layerNorm(Tensor x, LayerNorm norm, Tensor out) {
    ops.layerNorm(x, norm, out);
  }

  /** The rows' keys and values go to the cache, each at its position. */
  public void appendKv(Attention in) {
    ops.appendKv(in);
  }

  /** out = f(x), element by element; both of the same shape. */
  public void activate(Activation f, Tensor x, Tensor out) {
    requireSame(x, out);
    long elements = (long) x.rows() * x.cols();
    ops.run(
        Math.toIntExact((elements + PIECE - 1) / PIECE),
        (i, scratch) -> {
          long at = 4L * PIECE * i;
          int n = (int) Math.min(PIECE, elements - (long) PIECE * i);
          MemorySegment.copy(x.data(), at, out.data(), at, 4L * n);
          scratch.loops.activate(f, out.data(), at, n);
        });
  }

  /** out[r] = exp(x[r]) / sum exp(x[r]), by the steps of attention; both of the same shape. */
  public void softmax(Tensor x, Tensor out) {
    requireSame(x, out);
    ops.run(x.rows(), (r, scratch) -> softmax(x, out, r, scratch));
  }

  private static void softmax(Tensor x, Tensor out, int r, Scratch s) {
    int keys = InnerLoops.KEYS;
    int width = x.cols();
    MemorySegment row = s.panel(Math.ceilDiv(width, keys) * (long) keys);
    MemorySegment.copy(x.data(), x.offset(r, 0), row, 0, 4L * width);
    float max = Float.NEGATIVE_INFINITY;
    for (int c = 0; c < width; c += keys) {
      max = s.loops.scaleScores(row, 4L * c, Math.min(keys, width - c), 1, max);
    }
    s.denominators.asSlice(0, Scratch.LANES).fill((byte) 0);
    for (int c = 0; c < width; c += keys) {
      s.loops.exponentials(row, 4L * c, max, 1, s.denominators, 0);
    }
    s.loops.scale(row, 0, width, 1 / s.sum(s.denominators, 0), out.data(), out.offset(r, 0));
  }

  private static void requireSame(Tensor x, Tensor out) {
    if (x.rows() != out.rows() || x.cols() != out.cols()) {
      throw new IllegalArgumentException(
          "%d x %d to %d x %d".formatted(x.rows(), x.cols(), out.rows(), out.cols()));
    }
  }
}
