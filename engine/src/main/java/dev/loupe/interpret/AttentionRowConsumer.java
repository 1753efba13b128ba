package dev.loupe.interpret;

/** Receives rows of attention of one layer as they are rebuilt. */
@FunctionalInterface
public interface AttentionRowConsumer {
  /**
   * One query's row in one head.
   *
   * @param query the query's place in the text, from 0
   * @param row what it read, key 0 first; longer than the row, and used again for the next one
   */
  void row(int head, int query, float[] row);
}
