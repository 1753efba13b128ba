package dev.loupe.interpret.trace;

import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.tensor.StoredTensor;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/**
 * What one head makes of a residual stream, in double, from the checkpoint's own weights: the
 * readings of a trace that change what a single head reads, which a pass can't change apart.
 */
final class HeadMath {
  private static final int LAYERS_KEPT = 2; // weights of as many layers

  private final Checkpoint checkpoint;
  private final Gpt2Config config;
  private final int width;
  private final int headDim;
  private final Map<String, float[]> weights = new HashMap<>();

  HeadMath(Checkpoint checkpoint) {
    this.checkpoint = checkpoint;
    config = checkpoint.config();
    width = config.nEmbd();
    headDim = config.headDim();
  }

  /** A tensor of the checkpoint. */
  private float[] weight(String name) {
    if (weights.size() > 6 * LAYERS_KEPT) {
      weights.clear();
    }
    return weights.computeIfAbsent(
        name,
        _ -> {
          StoredTensor tensor = checkpoint.tensor(name);
          float[] values = new float[Math.toIntExact(tensor.elements())];
          tensor.read(0, values, 0, values.length);
          return values;
        });
  }

  private float[] weight(int layer, String name) {
    return weight("h.%d.%s".formatted(layer, name));
  }

  /**
   * The layer norm before the attention of a layer.
   *
   * @param x [T, C]
   */
  double[] norm(float[] x, int layer) {
    float[] g = weight(layer, "ln_1.weight");
    float[] b = weight(layer, "ln_1.bias");
    double[] out = new double[x.length];
    for (int at = 0; at < x.length; at += width) {
      double mean = 0;
      for (int c = 0; c < width; c++) {
        mean += x[at + c];
      }
      mean /= width;
      double variance = 0;
      for (int c = 0; c < width; c++) {
        variance += (x[at + c] - mean) * (x[at + c] - mean);
      }
      double deviation = Math.sqrt(variance / width + config.layerNormEpsilon());
      for (int c = 0; c < width; c++) {
        out[at + c] = (x[at + c] - mean) / deviation * g[c] + b[c];
      }
    }
    return out;
  }

  /**
   * The queries, keys or values of a head.
   *
   * @param normed [T, C]
   * @param via which of the three
   * @return [T, D]
   */
  double[] project(double[] normed, int layer, int head, Via via) {
    float[] w = weight(layer, "attn.c_attn.weight"); // [C, 3 C]
    float[] bias = weight(layer, "attn.c_attn.bias");
    int third = // of c_attn's outputs
        switch (via) {
          case QUERY -> 0;
          case KEY -> 1;
          default -> 2;
        };
    int first = third * width + head * headDim;
    int tokens = normed.length / width;
    double[] out = new double[tokens * headDim];
    for (int t = 0; t < tokens; t++) {
      int at = t * headDim;
      for (int d = 0; d < headDim; d++) {
        out[at + d] = bias[first + d];
      }
      for (int c = 0; c < width; c++) {
        double x = normed[t * width + c];
        int row = c * 3 * width + first;
        for (int d = 0; d < headDim; d++) {
          out[at + d] += x * w[row + d];
        }
      }
    }
    return out;
  }

  /** scale q . k of a query and a key. */
  double score(double[] q, int query, double[] k, int key, int layer) {
    double sum = 0;
    for (int d = 0; d < headDim; d++) {
      sum += q[query * headDim + d] * k[key * headDim + d];
    }
    return sum * config.attentionScale(layer);
  }

  /**
   * The row of a query: the softmax of its scores under the causal mask.
   *
   * @return [query + 1]
   */
  double[] row(double[] q, double[] k, int query, int layer) {
    double[] p = new double[query + 1];
    double most = Double.NEGATIVE_INFINITY;
    for (int key = 0; key <= query; key++) {
      p[key] = score(q, query, k, key, layer);
      most = Math.max(most, p[key]);
    }
    double sum = 0;
    for (int key = 0; key <= query; key++) {
      p[key] = Math.exp(p[key] - most);
      sum += p[key];
    }
    for (int key = 0; key <= query; key++) {
      p[key] /= sum;
    }
    return p;
  }

  /**
   * What a head makes of queries, keys and values.
   *
   * @return [T, D], before c_proj
   */
  double[] attend(double[] q, double[] k, double[] v, int layer) {
    double[] out = new double[q.length];
    for (int query = 0; query < q.length / headDim; query++) {
      double[] p = row(q, k, query, layer);
      for (int key = 0; key <= query; key++) {
        for (int d = 0; d < headDim; d++) {
          out[query * headDim + d] += p[key] * v[key * headDim + d];
        }
      }
    }
    return out;
  }

  /**
   * What some rows of a head's output add to the residual stream, without the bias.
   *
   * @param y [T, D]
   * @return [T, C]
   */
  float[] write(double[] y, int layer, int head) {
    float[] w = weight(layer, "attn.c_proj.weight"); // [C, C]
    int tokens = y.length / headDim;
    float[] out = new float[tokens * width];
    double[] row = new double[width];
    for (int t = 0; t < tokens; t++) {
      Arrays.fill(row, 0);
      for (int d = 0; d < headDim; d++) {
        double value = y[t * headDim + d];
        int of = (head * headDim + d) * width;
        for (int c = 0; value != 0 && c < width; c++) {
          row[c] += value * w[of + c];
        }
      }
      for (int c = 0; c < width; c++) {
        out[t * width + c] = (float) row[c];
      }
    }
    return out;
  }
}
