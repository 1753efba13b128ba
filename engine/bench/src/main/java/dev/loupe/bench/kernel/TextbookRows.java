package dev.loupe.bench.kernel;

import dev.loupe.ops.Tensor;
import java.lang.foreign.MemorySegment;

/**
 * What is done to each row for itself, in plain loops over plain arrays, by Java's own functions.
 */
final class TextbookRows {
  private final Problem problem;
  private final float[] x; // [R, C]
  private final int rows;
  private final int width;
  private final float[] y; // [C]
  private final Tensor out;

  private TextbookRows(Problem problem, Tensor out) {
    this.problem = problem;
    x = problem.x();
    rows = problem.shape().size("R");
    width = problem.shape().size("C");
    y = new float[width];
    this.out = out;
  }

  /** One row, that begins at {@code from}, to {@link #y}. */
  private interface Row {
    void run(int from);
  }

  static Runnable layerNorm(Problem problem, Tensor out) {
    TextbookRows all = new TextbookRows(problem, out);
    return () -> all.each(all::normalise);
  }

  static Runnable softmax(Problem problem, Tensor out) {
    TextbookRows all = new TextbookRows(problem, out);
    return () -> all.each(all::softmax);
  }

  static Runnable gelu(Problem problem, Tensor out) {
    TextbookRows all = new TextbookRows(problem, out);
    return () -> all.each(all::gelu);
  }

  private void each(Row row) {
    for (int r = 0; r < rows; r++) {
      row.run(r * width);
      MemorySegment.copy(y, 0, out.data(), CpuCandidate.F32, out.offset(r, 0), width);
    }
  }

  private void normalise(int from) {
    double sum = 0;
    for (int i = 0; i < width; i++) {
      sum += x[from + i];
    }
    double mean = sum / width;
    double squares = 0;
    for (int i = 0; i < width; i++) {
      squares += (x[from + i] - mean) * (x[from + i] - mean);
    }
    double deviation = Math.sqrt(squares / width + problem.epsilon());
    for (int i = 0; i < width; i++) {
      double normal = (x[from + i] - mean) / deviation;
      y[i] = (float) (normal * problem.weight()[i] + problem.bias()[i]);
    }
  }

  private void softmax(int from) {
    float max = Float.NEGATIVE_INFINITY;
    for (int i = 0; i < width; i++) {
      max = Math.max(max, x[from + i]);
    }
    double sum = 0;
    for (int i = 0; i < width; i++) {
      double e = Math.exp(x[from + i] - max);
      y[i] = (float) e;
      sum += e;
    }
    for (int i = 0; i < width; i++) {
      y[i] /= (float) sum;
    }
  }

  private void gelu(int from) {
    double factor = Math.sqrt(2 / Math.PI);
    for (int i = 0; i < width; i++) {
      double v = x[from + i];
      y[i] = (float) (0.5 * v * (1 + Math.tanh(factor * (v + 0.044715 * v * v * v))));
    }
  }
}
