package dev.loupe.text;

/**
 * Gives the bytes of tokens as parts of one text, in which the first token may be spelled another
 * way than those after it. For one text and one thread.
 */
final class TextBytes {
  private final Tokenizer tokenizer;
  private final boolean special;
  private boolean first = true;

  /**
   * @param special whether special tokens are part of the text
   */
  TextBytes(Tokenizer tokenizer, boolean special) {
    this.tokenizer = tokenizer;
    this.special = special;
  }

  /**
   * The bytes that the next token adds; none if it is special and those are left out.
   *
   * @throws IllegalArgumentException if no token has this id
   */
  byte[] next(int id) {
    if (!special && tokenizer.isControl(id)) {
      return new byte[0];
    }
    byte[] bytes = tokenizer.bytes(id, first);
    first &= bytes.length == 0 && tokenizer.isFirstUntilText();
    return bytes;
  }
}
