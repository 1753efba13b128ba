package dev.loupe.attention;

/** Receives attention row by row as the model reads and writes. */
@FunctionalInterface
public interface AttentionRowConsumer {
  /**
   * One query's row in one head.
   *
   * @param query the query's place in the whole run, from 0
   * @param row what it read of keys 0 .. query, in its first {@code query + 1} elements, or its
   *     statistics; reused for the next row, so copy what is to be kept
   */
  void row(int sequence, int layer, int head, int query, float[] row);
}
