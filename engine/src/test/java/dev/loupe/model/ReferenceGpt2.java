package dev.loupe.model;

import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.tensor.StoredTensor;
import java.util.Arrays;

/**
 * GPT-2 in plain double precision, in the order of a textbook: whole sequence, materialised scores,
 * softmax, no cache. Shares nothing with the engine but the checkpoint reader.
 */
public final class ReferenceGpt2 {
  /** [T, V]. */
  public final double[][] logits;

  /** [L, H, T, T]: softmax of the scores, 0 above the diagonal. */
  public final double[][][][] attention;

  /** [L, H, T, T]: scaled q.k. */
  public final double[][][][] scores;

  /** [L, T, C]: the values, each H heads of D. */
  public final double[][][] values;

  /** [L + 1, T, C]: the residual stream before the first block and after each. */
  public final double[][][] hidden;

  /** [L, T, C]: what the heads made of the values, side by side, before c_proj. */
  public final double[][][] heads;

  /** [L, T, C]: what the MLPs make. */
  public final double[][][] mlps;

  private final Checkpoint checkpoint;
  private final Gpt2Config config;

  /** Changes what a model computes on its way. */
  public interface Change {
    /** What the heads of a layer made, [T, C], before c_proj. */
    void of(int layer, double[][] heads);

    /** The residual stream before a layer, [T, C]; after the last, layer is L. */
    default void residual(int layer, double[][] x) {}

    /** Queries, keys and values of a layer, [T, 3C]. */
    default void inputs(int layer, double[][] qkv) {}

    /** What the MLP of a layer adds, [T, C]. */
    default void mlp(int layer, double[][] out) {}
  }

  private final Change change;
  private final boolean causal;

  public ReferenceGpt2(Checkpoint checkpoint, int[] ids) {
    this(checkpoint, checkpoint.config(), ids, (layer, heads) -> {});
  }

  public ReferenceGpt2(Checkpoint checkpoint, Gpt2Config config, int[] ids, Change change) {
    this(checkpoint, config, ids, change, true);
  }

  public ReferenceGpt2(
      Checkpoint checkpoint, Gpt2Config config, int[] ids, Change change, boolean causal) {
    this.causal = causal;
    this.checkpoint = checkpoint;
    this.config = config;
    this.change = change;
    int t = ids.length;
    attention = new double[config.nLayer()][config.nHead()][t][t];
    scores = new double[config.nLayer()][config.nHead()][t][t];
    values = new double[config.nLayer()][t][];
    hidden = new double[config.nLayer() + 1][][];
    heads = new double[config.nLayer()][][];
    mlps = new double[config.nLayer()][][];
    double[][] x = new double[t][config.nEmbd()];
    StoredTensor wte = checkpoint.tensor("wte.weight");
    StoredTensor wpe = checkpoint.tensor("wpe.weight");
    for (int i = 0; i < t; i++) {
      double[] token = row(wte, ids[i]);
      double[] position = row(wpe, i);
      for (int c = 0; c < config.nEmbd(); c++) {
        x[i][c] = token[c] + position[c];
      }
    }
    hidden[0] = copy(x);
    for (int layer = 0; layer < config.nLayer(); layer++) {
      change.residual(layer, x);
      block(layer, x);
      hidden[layer + 1] = copy(x);
    }
    change.residual(config.nLayer(), x);
    double[][] normed = layerNorm(x, "ln_f");
    StoredTensor head =
        checkpoint.has("lm_head.weight") ? checkpoint.tensor("lm_head.weight") : wte;
    logits = new double[t][config.vocabSize()];
    for (int v = 0; v < config.vocabSize(); v++) {
      double[] w = row(head, v);
      for (int i = 0; i < t; i++) {
        for (int c = 0; c < config.nEmbd(); c++) {
          logits[i][v] += normed[i][c] * w[c];
        }
      }
    }
  }

  private void block(int layer, double[][] x) {
    String prefix = "h." + layer + ".";
    double[][] qkv = qkv(layer, x);
    change.inputs(layer, qkv);
    heads[layer] = attend(layer, qkv);
    change.of(layer, heads[layer]);
    add(x, linear(heads[layer], prefix + "attn.c_proj"));
    double[][] inner = linear(layerNorm(x, prefix + "ln_2"), prefix + "mlp.c_fc");
    for (double[] row : inner) {
      for (int i = 0; i < row.length; i++) {
        row[i] = ReferenceActivation.of(config.activation(), row[i]);
      }
    }
    double[][] out = linear(inner, prefix + "mlp.c_proj");
    mlps[layer] = copy(out);
    change.mlp(layer, out);
    add(x, out);
  }

  /** Queries, keys and values that a layer makes of a residual stream. */
  public double[][] qkv(int layer, double[][] x) {
    String prefix = "h." + layer + ".";
    return linear(layerNorm(x, prefix + "ln_1"), prefix + "attn.c_attn");
  }

  private double[][] attend(int layer, double[][] qkv) {
    int t = qkv.length;
    int c = config.nEmbd();
    int d = c / config.nHead();
    double scale = config.scaleAttnWeights() ? 1 / Math.sqrt(d) : 1;
    if (config.scaleAttnByInverseLayerIdx()) {
      scale /= layer + 1;
    }
    for (int i = 0; i < t; i++) {
      values[layer][i] = Arrays.copyOfRange(qkv[i], 2 * c, 3 * c);
    }
    double[][] out = new double[t][c];
    for (int h = 0; h < config.nHead(); h++) {
      for (int i = 0; i < t; i++) {
        double[] s = scores[layer][h][i];
        double[] p = attention[layer][h][i];
        double max = Double.NEGATIVE_INFINITY;
        int keys = causal ? i + 1 : t;
        for (int j = 0; j < keys; j++) {
          for (int e = 0; e < d; e++) {
            s[j] += qkv[i][h * d + e] * qkv[j][c + h * d + e];
          }
          s[j] *= scale;
          max = Math.max(max, s[j]);
        }
        double sum = 0;
        for (int j = 0; j < keys; j++) {
          p[j] = Math.exp(s[j] - max);
          sum += p[j];
        }
        for (int j = 0; j < keys; j++) {
          p[j] /= sum;
          for (int e = 0; e < d; e++) {
            out[i][h * d + e] += p[j] * qkv[j][2 * c + h * d + e];
          }
        }
      }
    }
    return out;
  }

  private double[][] layerNorm(double[][] x, String name) {
    double[] weight = all(checkpoint.tensor(name + ".weight"));
    double[] bias = all(checkpoint.tensor(name + ".bias"));
    double[][] out = new double[x.length][weight.length];
    for (int i = 0; i < x.length; i++) {
      double mean = 0;
      for (double v : x[i]) {
        mean += v / weight.length;
      }
      double variance = 0;
      for (double v : x[i]) {
        variance += (v - mean) * (v - mean) / weight.length;
      }
      for (int c = 0; c < weight.length; c++) {
        double normed = (x[i][c] - mean) / Math.sqrt(variance + config.layerNormEpsilon());
        out[i][c] = normed * weight[c] + bias[c];
      }
    }
    return out;
  }

  private double[][] linear(double[][] x, String name) {
    double[] bias = all(checkpoint.tensor(name + ".bias"));
    StoredTensor weight = checkpoint.tensor(name + ".weight"); // [in, out]
    double[][] out = new double[x.length][];
    for (int i = 0; i < x.length; i++) {
      out[i] = bias.clone();
    }
    for (int k = 0; k < x[0].length; k++) {
      double[] w = row(weight, k);
      for (int i = 0; i < x.length; i++) {
        for (int j = 0; j < w.length; j++) {
          out[i][j] += x[i][k] * w[j];
        }
      }
    }
    return out;
  }

  private static void add(double[][] x, double[][] y) {
    for (int i = 0; i < x.length; i++) {
      for (int c = 0; c < x[i].length; c++) {
        x[i][c] += y[i][c];
      }
    }
  }

  private static double[][] copy(double[][] x) {
    double[][] copy = new double[x.length][];
    for (int i = 0; i < x.length; i++) {
      copy[i] = x[i].clone();
    }
    return copy;
  }

  private static double[] all(StoredTensor tensor) {
    return read(tensor, 0, (int) tensor.elements());
  }

  private static double[] row(StoredTensor tensor, int r) {
    int n = tensor.shape().getLast().intValue();
    return read(tensor, (long) r * n, n);
  }

  private static double[] read(StoredTensor tensor, long first, int n) {
    float[] narrow = new float[n];
    tensor.read(first, narrow, 0, n);
    double[] wide = new double[n];
    for (int i = 0; i < n; i++) {
      wide[i] = narrow[i];
    }
    return wide;
  }
}
