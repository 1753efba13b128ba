package dev.loupe.attention;

import dev.loupe.ops.Attention;
import dev.loupe.ops.Ops;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.tensor.StoredTensor;
import java.util.Arrays;

/**
 * How long the vector is that a head writes for a token it reads fully: |v W_O| (Kobayashi et al.,
 * "Attention is Not Only a Weight", 2020), v [D] the head's value of the token, its bias included,
 * and W_O [D, C] the head's rows of h.N.attn.c_proj.weight.
 *
 * <p>|v W_O|^2 = v G v with G = W_O W_O^T [D, D], made once a model, so that a token costs D^2 / 2
 * and not D C. Weights are as the checkpoint has them, whatever a backend rounds them to.
 */
public final class ValueNorms {
  /** Hears the norm of one token in one head. */
  @FunctionalInterface
  public interface Listener {
    /**
     * Hears one norm.
     *
     * @param sequence of the pass
     * @param position of the token in it, from 0
     * @param norm |v W_O| of this head
     */
    void norm(int sequence, int layer, int head, int position, float norm);
  }

  private final Gpt2Config config;
  private final float[][][] grams; // [L, H], each [D, D]: G's upper half, twice off the diagonal

  /** Of the model of {@code checkpoint}, which is needed no longer. */
  public ValueNorms(Checkpoint checkpoint) {
    config = checkpoint.config();
    grams = new float[config.nLayer()][][];
    for (int layer = 0; layer < config.nLayer(); layer++) {
      StoredTensor cProj = checkpoint.tensor("h." + layer + ".attn.c_proj.weight"); // [C, C]
      grams[layer] = new float[config.nHead()][];
      for (int head = 0; head < config.nHead(); head++) {
        grams[layer][head] = gram(cProj, head);
      }
    }
  }

  private float[] gram(StoredTensor cProj, int head) {
    int c = config.nEmbd();
    int d = config.headDim();
    float[] block = new float[d * c]; // W_O of the head
    cProj.read((long) head * d * c, block, 0, block.length);
    double[] sums = new double[d * d];
    double[] column = new double[d];
    for (int k = 0; k < c; k++) {
      for (int i = 0; i < d; i++) {
        column[i] = block[i * c + k];
      }
      for (int i = 0; i < d; i++) {
        double factor = column[i];
        for (int j = 0; j < d; j++) {
          sums[i * d + j] += factor * column[j];
        }
      }
    }
    float[] gram = new float[d * d];
    for (int i = 0; i < d; i++) {
      gram[i * d + i] = (float) sums[i * d + i];
      for (int j = i + 1; j < d; j++) {
        gram[i * d + j] = (float) (2 * sums[i * d + j]);
      }
    }
    return gram;
  }

  /**
   * Says the norms of some tokens of a pass in the heads {@code heads} of its layer.
   *
   * @param first the first row of the pass that counts
   * @param rows how many rows count
   */
  public void observe(
      Ops ops, Attention in, int first, int rows, Iterable<Integer> heads, Listener listener) {
    int c = config.nEmbd();
    int d = config.headDim();
    float[] qkv = new float[3 * c];
    float[] product = new float[d];
    for (int r = first; r < first + rows; r++) {
      ops.read(in.qkv(), r, qkv, qkv.length);
      for (int head : heads) {
        float norm = norm(grams[in.layer()][head], qkv, 2 * c + head * d, product);
        listener.norm(in.batch().sequence(r), in.layer(), head, in.batch().position(r), norm);
      }
    }
  }

  /** sqrt(v G v), which G's upper half is enough for; v at {@code at} of {@code values}. */
  private static float norm(float[] gram, float[] values, int at, float[] product) {
    int d = product.length;
    Arrays.fill(product, 0);
    int i = 0;
    for (; i <= d - 4; i += 4) { // four at a time load and store the product once
      float v0 = values[at + i];
      float v1 = values[at + i + 1];
      float v2 = values[at + i + 2];
      float v3 = values[at + i + 3];
      int row = i * d;
      for (int j = i; j < d; j++) {
        product[j] +=
            v0 * gram[row + j]
                + v1 * gram[row + d + j]
                + v2 * gram[row + 2 * d + j]
                + v3 * gram[row + 3 * d + j];
      }
    }
    for (; i < d; i++) {
      for (int j = i; j < d; j++) {
        product[j] += values[at + i] * gram[i * d + j];
      }
    }
    double square = 0;
    for (int j = 0; j < d; j++) {
      square += (double) product[j] * values[at + j];
    }
    return (float) Math.sqrt(Math.max(0, square)); // rounding may take a tiny one below 0
  }
}
