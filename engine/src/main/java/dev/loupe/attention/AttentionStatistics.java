package dev.loupe.attention;

import dev.loupe.ops.AttentionPlan;
import java.util.Arrays;

/**
 * How the rows of attention are spread, for chosen layers and heads over T tokens: a few numbers of
 * each row, where {@link AttentionMaps} has all of it. Layers and heads keep their numbers in the
 * model.
 */
public final class AttentionStatistics {
  private final int[] layers;
  private final int[] heads;
  private final int tokens;
  private final int top;
  private final float[][] rows; // for each layer and head: [T, 2 + 2 top], as Ops.statistics has it

  private AttentionStatistics(int[] layers, int[] heads, int tokens, int top, float[][] rows) {
    this.layers = layers.clone();
    this.heads = heads.clone();
    this.tokens = tokens;
    this.top = top;
    this.rows = rows;
  }

  /**
   * Room for the statistics of {@code layers} x {@code heads} over {@code tokens} tokens; the
   * numbers ascend.
   *
   * @param top how many keys are named of each row
   */
  public static AttentionStatistics allocate(int[] layers, int[] heads, int tokens, int top) {
    int size = Math.multiplyExact(tokens, AttentionPlan.statisticsOf(top));
    float[][] rows = new float[layers.length * heads.length][size];
    return new AttentionStatistics(layers, heads, tokens, top, rows);
  }

  /** Those of the first {@code n} tokens, sharing memory with these. */
  public AttentionStatistics first(int n) {
    if (n < 0 || n > tokens) {
      throw new IllegalArgumentException("the first %d of %d tokens".formatted(n, tokens));
    }
    return new AttentionStatistics(layers, heads, n, top, rows);
  }

  /** The layers that are here, by their number in the model, ascending. */
  public int[] layers() {
    return layers.clone();
  }

  /** The heads that are here of each layer, by their number in the model, ascending. */
  public int[] heads() {
    return heads.clone();
  }

  /** Number of tokens, T: queries 0..T-1. */
  public int tokens() {
    return tokens;
  }

  /** How many keys are named of each row. */
  public int top() {
    return top;
  }

  /**
   * Entropy of a row, -sum p log p, in nats: 0 if it read one key only, log(n) if n keys alike.
   *
   * @throws IllegalArgumentException if the layer, head or query is not here
   */
  public float entropy(int layer, int head, int query) {
    return rows[index(layer, head, query)][at(query)];
  }

  /** Mean distance of a row, sum of p (query - key), in tokens; likewise. */
  public float meanDistance(int layer, int head, int query) {
    return rows[index(layer, head, query)][at(query) + 1];
  }

  /**
   * The keys that a row read most, the most read first, the earlier first among equals; likewise.
   *
   * @return as many as were asked for, or all that the row has
   */
  public int[] topKeys(int layer, int head, int query) {
    float[] of = rows[index(layer, head, query)];
    int[] keys = new int[Math.min(top, query + 1)];
    for (int i = 0; i < keys.length; i++) {
      keys[i] = (int) of[at(query) + 2 + i];
    }
    return keys;
  }

  /** What a row read of each of {@link #topKeys}. */
  public float[] topWeights(int layer, int head, int query) {
    float[] of = rows[index(layer, head, query)];
    int from = at(query) + 2 + top;
    return Arrays.copyOfRange(of, from, from + Math.min(top, query + 1));
  }

  /**
   * Stores what is known of the row of {@code query}: entropy, mean distance, top keys, their
   * weights.
   */
  public void put(int layer, int head, int query, float[] row) {
    System.arraycopy(row, 0, rows[index(layer, head, query)], at(query), width());
  }

  private int width() {
    return AttentionPlan.statisticsOf(top);
  }

  private int at(int query) {
    return query * width();
  }

  private int index(int layer, int head, int query) {
    int l = Arrays.binarySearch(layers, layer);
    int h = Arrays.binarySearch(heads, head);
    if (l < 0 || h < 0 || query < 0 || query >= tokens) {
      throw new IllegalArgumentException(
          "no statistics of layer %d, head %d, query %d here: layers %s, heads %s, %d tokens"
              .formatted(
                  layer, head, query, Arrays.toString(layers), Arrays.toString(heads), tokens));
    }
    return l * heads.length + h;
  }
}
