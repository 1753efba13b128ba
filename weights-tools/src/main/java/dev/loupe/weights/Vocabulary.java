package dev.loupe.weights;

import java.util.List;

/**
 * A byte-level tokenizer as a checkpoint carries it.
 *
 * @param tokens by id; there may be fewer than the model has rows
 * @param merges {@code "left right"} in GPT-2's byte alphabet, the first that applies first. If
 *     there are none, a text is cut into the longest tokens from its beginning on: so a vocabulary
 *     of characters gives a token for each.
 */
public record Vocabulary(List<Token> tokens, List<String> merges) {
  public Vocabulary {
    tokens = List.copyOf(tokens);
    merges = List.copyOf(merges);
  }

  /** What a token is for. */
  public enum Kind {
    /** Found in text; spelled in {@link ByteAlphabet}. */
    NORMAL,
    /** Steers the model and is no text, as {@code <|endoftext|>}; spelled as it is. */
    SPECIAL,
    /** Found in text before all others; spelled as it is. */
    ADDED,
    /** A row of the table that stands for nothing. */
    UNUSED
  }

  /** One entry. */
  public record Token(String spelling, Kind kind) {
    /** An id that stands for nothing. */
    public static Token unused(int id) {
      return new Token("[PAD%d]".formatted(id), Kind.UNUSED);
    }
  }
}
