package dev.loupe.bench.kernel;

import dev.loupe.ops.Tensor;
import java.lang.foreign.MemorySegment;

/** A matrix product in plain loops over plain arrays; the two differ in their loops' order. */
final class TextbookLinear {
  private final float[] x; // [M, K]
  private final float[] w; // [K, N]
  private final float[] bias; // [N]
  private final int rows;
  private final int inputs;
  private final int outputs;
  private final float[] y; // [N]
  private final Tensor out;

  private TextbookLinear(Problem problem, Tensor out) {
    x = problem.x();
    w = problem.weight();
    bias = problem.bias();
    rows = problem.shape().size("M");
    inputs = problem.shape().size("K");
    outputs = problem.shape().size("N");
    y = new float[outputs];
    this.out = out;
  }

  /** A sum at a time. */
  static Runnable naive(Problem problem, Tensor out) {
    TextbookLinear linear = new TextbookLinear(problem, out);
    return () -> {
      for (int m = 0; m < linear.rows; m++) {
        for (int n = 0; n < linear.outputs; n++) {
          linear.y[n] = linear.output(m, n);
        }
        linear.write(m);
      }
    };
  }

  /** All sums of a row at a time, an input after the other. */
  static Runnable rows(Problem problem, Tensor out) {
    TextbookLinear linear = new TextbookLinear(problem, out);
    return () -> {
      for (int m = 0; m < linear.rows; m++) {
        System.arraycopy(linear.bias, 0, linear.y, 0, linear.outputs);
        for (int k = 0; k < linear.inputs; k++) {
          linear.add(linear.x[m * linear.inputs + k], k * linear.outputs);
        }
        linear.write(m);
      }
    };
  }

  private float output(int m, int n) {
    float sum = bias[n];
    for (int k = 0; k < inputs; k++) {
      sum += x[m * inputs + k] * w[k * outputs + n];
    }
    return sum;
  }

  private void add(float xk, int row) {
    for (int n = 0; n < outputs; n++) {
      y[n] += xk * w[row + n];
    }
  }

  private void write(int m) {
    MemorySegment.copy(y, 0, out.data(), CpuCandidate.F32, out.offset(m, 0), outputs);
  }
}
