package dev.loupe.text.codec;

/** Cuts text without added tokens into tokens. */
interface Encoder extends AutoCloseable {
  /**
   * The ids of {@code text}.
   *
   * @param text whole characters only
   * @throws IllegalArgumentException if there is no token for some of it; the message says for what
   * @throws IllegalStateException if closed
   */
  long[] encode(String text);

  @Override
  void close();
}
