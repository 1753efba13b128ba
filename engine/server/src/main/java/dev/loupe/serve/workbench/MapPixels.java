package dev.loupe.serve.workbench;

import dev.loupe.interpret.ActivationCache;
import dev.loupe.interpret.MapKind;
import java.util.Arrays;

/**
 * Maps as bytes for pictures. Where a pixel stands for several weights it is the largest of them: a
 * mean over 16 by 16 would make 0.06 of a diagonal of ones.
 */
final class MapPixels {
  /** Pixels of one answer. */
  static final int MOST = 1 << 16;

  /** Of a map. Ends are exclusive. */
  record Part(
      MapKind kind,
      int layer,
      int head,
      int fromQuery,
      int toQuery,
      int fromKey,
      int toKey,
      int by) {
    int rows() {
      return Math.ceilDiv(toQuery - fromQuery, by);
    }

    int columns() {
      return Math.ceilDiv(toKey - fromKey, by);
    }
  }

  private MapPixels() {}

  /** round(255 sqrt p): weights from 0 to 1, the small ones told apart. */
  static byte unsigned(float weight) {
    return (byte) Math.round(255 * Math.sqrt(Math.clamp(weight, 0f, 1f)));
  }

  private static byte[] unsigned(float[] weights) {
    byte[] bytes = new byte[weights.length];
    for (int i = 0; i < bytes.length; i++) {
      bytes[i] = unsigned(weights[i]);
    }
    return bytes;
  }

  /** sign(d) round(127 sqrt |d|), d from -1 to 1. */
  static byte signed(float difference) {
    long size = Math.round(127 * Math.sqrt(Math.min(Math.abs(difference), 1f)));
    return (byte) (difference < 0 ? -size : size);
  }

  /** [rows][columns] of a part, each the largest of {@code by} x {@code by} weights. */
  static byte[] part(ActivationCache cache, Part part) {
    float[] largest = new float[part.rows() * part.columns()];
    rows(
        cache,
        part,
        (query, key, weight) -> {
          int row = (query - part.fromQuery) / part.by;
          int pixel = row * part.columns() + (key - part.fromKey) / part.by;
          largest[pixel] = Math.max(largest[pixel], weight);
        });
    return unsigned(largest);
  }

  /** Likewise of {@code cache} less {@code other}: of each pixel the difference that is largest. */
  static byte[] difference(ActivationCache cache, ActivationCache other, Part part) {
    int width = part.toKey - part.fromKey;
    float[] weights = new float[(part.toQuery - part.fromQuery) * width];
    rows(cache, part, (query, key, weight) -> weights[index(part, width, query, key)] += weight);
    rows(other, part, (query, key, weight) -> weights[index(part, width, query, key)] -= weight);
    float[] largest = new float[part.rows() * part.columns()];
    for (int i = 0; i < weights.length; i++) {
      int pixel = i / width / part.by * part.columns() + i % width / part.by;
      if (Math.abs(weights[i]) > Math.abs(largest[pixel])) {
        largest[pixel] = weights[i];
      }
    }
    byte[] bytes = new byte[largest.length];
    for (int i = 0; i < bytes.length; i++) {
      bytes[i] = signed(largest[i]);
    }
    return bytes;
  }

  private static int index(Part part, int width, int query, int key) {
    return (query - part.fromQuery) * width + key - part.fromKey;
  }

  private interface Weights {
    void weight(int query, int key, float weight);
  }

  private static void rows(ActivationCache cache, Part part, Weights weights) {
    cache.rebuild(
        part.kind,
        part.layer,
        new int[] {part.head},
        part.fromQuery,
        part.toQuery,
        (_, query, row) -> {
          int to = Math.min(part.toKey, cache.keys(query));
          for (int key = part.fromKey; key < to; key++) {
            weights.weight(query, key, row[key]);
          }
        });
  }

  /**
   * Small pictures of the whole maps of all heads of some layers: [layers][heads][s][s] with s the
   * smaller of {@code side} and the number of tokens T; pixel (r, c) stands for the queries r T / s
   * up to (r + 1) T / s, and for the keys likewise.
   *
   * @param toLayer one past the last
   */
  static byte[] thumbs(ActivationCache cache, int fromLayer, int toLayer, int side) {
    int tokens = cache.tokens().size();
    int s = Math.min(side, tokens);
    int[] pixel = new int[tokens]; // of a query, or a key
    for (int p = 0; p < s; p++) {
      Arrays.fill(pixel, (int) ((long) p * tokens / s), (int) ((p + 1L) * tokens / s), p);
    }
    int[] heads = new int[cache.heads()];
    Arrays.setAll(heads, head -> head);
    float[] largest = new float[(toLayer - fromLayer) * heads.length * s * s];
    for (int layer = fromLayer; layer < toLayer; layer++) {
      int of = (layer - fromLayer) * heads.length;
      cache.rebuild(
          layer,
          heads,
          0,
          tokens,
          (head, query, row) -> {
            int first = ((of + head) * s + pixel[query]) * s;
            int keys = cache.keys(query);
            for (int key = 0; key < keys; key++) {
              int at = first + pixel[key];
              largest[at] = Math.max(largest[at], row[key]);
            }
          });
    }
    return unsigned(largest);
  }
}
