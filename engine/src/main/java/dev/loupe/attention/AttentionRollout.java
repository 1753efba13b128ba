package dev.loupe.attention;

/**
 * Attention rollout: how much of each token is in what the last layer holds for a query, were
 * attention all that mixes tokens (Abnar and Zuidema, "Quantifying Attention Flow in Transformers",
 * 2020). With A_l the mean of the heads of layer l, and half of each layer the residual stream,
 *
 * <p>R = (A_L / 2 + I / 2) ... (A_2 / 2 + I / 2) (A_1 / 2 + I / 2), [T, T]; rows sum to 1.
 *
 * <p>Tokens read one another layer by layer while rows come token by token, so the means are kept:
 * L triangles of T (T + 1) / 2 floats, an H-th of the maps. R itself is made row by row, on
 * request.
 */
public final class AttentionRollout {
  private static final int MOST_TOKENS = 32_768; // 2 GB a layer

  private final int heads;
  private final int tokens;
  private final float[][] means; // of each layer: row i, [i + 1], begins at i (i + 1) / 2

  private AttentionRollout(int heads, int tokens, float[][] means) {
    this.heads = heads;
    this.tokens = tokens;
    this.means = means;
  }

  /**
   * Room for all layers of a model over {@code tokens} tokens.
   *
   * @throws IllegalArgumentException if there are too many of them
   */
  public static AttentionRollout allocate(int layers, int heads, int tokens) {
    if (tokens > MOST_TOKENS) {
      throw new IllegalArgumentException(
          "rollout over %d tokens: at most %d".formatted(tokens, MOST_TOKENS));
    }
    int size = start(tokens);
    return new AttentionRollout(heads, tokens, new float[layers][size]);
  }

  /** That of the first {@code n} tokens, sharing memory with this. */
  public AttentionRollout first(int n) {
    if (n < 0 || n > tokens) {
      throw new IllegalArgumentException("the first %d of %d tokens".formatted(n, tokens));
    }
    return new AttentionRollout(heads, n, means);
  }

  /** Number of tokens, T: queries 0..T-1. */
  public int tokens() {
    return tokens;
  }

  /** Takes the row of one head, P[query, j] at index j; each head of each layer comes once. */
  public void put(int layer, int query, float[] row) {
    int at = start(query);
    float[] mean = means[layer];
    float part = 1f / heads;
    for (int key = 0; key <= query; key++) {
      mean[at + key] += part * row[key];
    }
  }

  /**
   * The row of {@code query}.
   *
   * @return R[query, j], [query + 1]; sums to 1
   */
  public float[] row(int query) {
    if (query < 0 || query >= tokens) {
      throw new IllegalArgumentException("query %d of %d tokens".formatted(query, tokens));
    }
    float[] row = new float[query + 1];
    row[query] = 1;
    for (int layer = means.length - 1; layer >= 0; layer--) {
      row = through(means[layer], row);
    }
    return row;
  }

  /**
   * Rollout up to and with each layer: R_l = (A_l / 2 + I / 2) R_(l-1), that of no layer being I.
   *
   * @return of each layer, rows one after the other: row i, [i + 1], begins at i (i + 1) / 2
   */
  public float[][] maps() {
    float[][] all = new float[means.length][start(tokens)];
    for (int layer = 0; layer < all.length; layer++) {
      for (int query = 0; query < tokens; query++) {
        int at = start(query);
        for (int key = 0; key <= query; key++) {
          float part = means[layer][at + key] / 2 + (key == query ? 0.5f : 0);
          if (layer == 0) {
            all[layer][at + key] = part;
            continue;
          }
          int from = start(key);
          for (int j = 0; j <= key; j++) {
            all[layer][at + j] += part * all[layer - 1][from + j];
          }
        }
      }
    }
    return all;
  }

  /** row (A / 2 + I / 2). */
  private static float[] through(float[] mean, float[] row) {
    float[] out = new float[row.length];
    for (int i = 0; i < row.length; i++) {
      float half = row[i] / 2;
      int at = start(i);
      for (int j = 0; j <= i; j++) {
        out[j] += half * mean[at + j];
      }
      out[i] += half;
    }
    return out;
  }

  private static int start(int query) {
    return query * (query + 1) / 2;
  }
}
