package dev.loupe.attention;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;

/**
 * Attention of chosen layers and heads over T tokens, one row per query: how much query q read from
 * each key 0..q. The same container holds probabilities (rows sum to 1) or pre-softmax scores.
 *
 * <p>Rows arrive in any order and are stored causal-packed, q + 1 floats for query q, so all maps
 * take half the memory of square ones. Layers and heads keep their numbers in the model.
 */
public final class AttentionMaps {
  private final int[] layers;
  private final int[] heads;
  private final int tokens;
  private final MemorySegment data; // [layers, heads, T (T + 1) / 2] f32

  private AttentionMaps(int[] layers, int[] heads, int tokens, MemorySegment data) {
    this.layers = layers.clone();
    this.heads = heads.clone();
    this.tokens = tokens;
    this.data = data;
  }

  /**
   * Room for the maps of {@code layers} x {@code heads} over {@code tokens} tokens, all zero. The
   * memory goes when the maps are garbage.
   */
  public static AttentionMaps allocate(int[] layers, int[] heads, int tokens) {
    long bytes = 4L * layers.length * heads.length * packedRow(tokens);
    return new AttentionMaps(layers, heads, tokens, Arena.ofAuto().allocate(bytes, 64));
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

  /**
   * What {@code query} read in one head.
   *
   * @return [query + 1], key 0 first
   * @throws IllegalArgumentException if the layer, head or query is not here
   */
  public float[] row(int layer, int head, int query) {
    float[] row = new float[query + 1];
    MemorySegment.copy(
        data, ValueLayout.JAVA_FLOAT, offset(layer, head, query), row, 0, row.length);
    return row;
  }

  /** Stores the row of {@code query}: its first {@code query + 1} floats of {@code weights}. */
  public void put(int layer, int head, int query, float[] weights) {
    MemorySegment.copy(
        weights, 0, data, ValueLayout.JAVA_FLOAT, offset(layer, head, query), query + 1);
  }

  private long offset(int layer, int head, int query) {
    int l = Arrays.binarySearch(layers, layer);
    int h = Arrays.binarySearch(heads, head);
    if (l < 0 || h < 0 || query < 0 || query >= tokens) {
      throw new IllegalArgumentException(
          "no map of layer %d, head %d, query %d here: layers %s, heads %s, %d tokens"
              .formatted(
                  layer, head, query, Arrays.toString(layers), Arrays.toString(heads), tokens));
    }
    return 4 * (((long) l * heads.length + h) * packedRow(tokens) + packedRow(query));
  }

  /** Floats before row {@code query} of a packed lower triangle. */
  private static long packedRow(int query) {
    return (long) query * (query + 1) / 2;
  }
}
