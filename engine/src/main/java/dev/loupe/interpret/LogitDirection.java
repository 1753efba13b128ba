package dev.loupe.interpret;

import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.tensor.StoredTensor;
import java.util.Arrays;
import java.util.BitSet;

/**
 * What an output that goes to the residual stream adds to a logit: its product with a direction, in
 * double; {@link Lens} says how.
 */
final class LogitDirection {
  private LogitDirection() {}

  /**
   * The q for which o . q is what o adds: q = v - mean(v) with v = g u / s, as the mean of o is
   * taken off before.
   *
   * @param unembedding u
   * @param x [C]: the residual stream after the last layer
   */
  static double[] of(Checkpoint checkpoint, double[] unembedding, double[] x) {
    double mean = Arrays.stream(x).average().orElseThrow();
    double variance = Arrays.stream(x).map(v -> (v - mean) * (v - mean)).average().orElseThrow();
    double deviation = Math.sqrt(variance + checkpoint.config().layerNormEpsilon());
    double[] weight = row(checkpoint.tensor("ln_f.weight"), 0);
    double[] q = unembedding.clone();
    for (int c = 0; c < q.length; c++) {
      q[c] *= weight[c] / deviation;
    }
    double middle = Arrays.stream(q).average().orElseThrow();
    for (int c = 0; c < q.length; c++) {
      q[c] -= middle;
    }
    return q;
  }

  /** The head's row of a token, less the mean of the rows of all tokens that can be said. */
  static double[] unembedding(Checkpoint checkpoint, BitSet sayable, int target) {
    StoredTensor head =
        checkpoint.tensor(checkpoint.has("lm_head.weight") ? "lm_head.weight" : "wte.weight");
    double[] u = row(head, target);
    int count = sayable.cardinality();
    for (int id = sayable.nextSetBit(0); id >= 0; id = sayable.nextSetBit(id + 1)) {
      double[] other = row(head, id);
      for (int c = 0; c < u.length; c++) {
        u[c] -= other[c] / count;
      }
    }
    return u;
  }

  /** A row of a tensor. */
  static double[] row(StoredTensor tensor, int row) {
    int n = Math.toIntExact(tensor.shape().getLast());
    float[] values = new float[n];
    tensor.read((long) row * n, values, 0, n);
    return wide(values);
  }

  static double[] wide(float[] values) {
    double[] wide = new double[values.length];
    for (int i = 0; i < values.length; i++) {
      wide[i] = values[i];
    }
    return wide;
  }

  static double dot(double[] x, double[] y) {
    double sum = 0;
    for (int i = 0; i < x.length; i++) {
      sum += x[i] * y[i];
    }
    return sum;
  }
}
