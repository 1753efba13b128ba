package dev.loupe.weights.vocabulary;

import java.util.List;
import java.util.Optional;

/**
 * A byte-level tokenizer as a checkpoint carries it.
 *
 * @param tokens by id; there may be fewer than the model has rows
 * @param merges {@code "left right"} in GPT-2's byte alphabet, the first that applies first. If
 *     there are none, a text is cut into the longest tokens from its beginning on: so a vocabulary
 *     of characters gives a token for each.
 * @param front id of the token that belongs in front of every text, -1 if there is none
 * @param unknown id of the token for what has no other, -1 if there is none or it is not known
 * @param chatTemplate in Jinja: what makes a text of a conversation
 */
public record Vocabulary(
    List<Token> tokens,
    List<String> merges,
    int front,
    int unknown,
    Optional<String> chatTemplate) {
  /**
   * Ids beyond this are taken for a broken file: 20 times GPT-2's, four times the largest today.
   */
  public static final int MOST_TOKENS = 1 << 20;

  /** GPT-2's own, of a checkpoint that was trained with it and doesn't carry it: without tokens. */
  public static final Vocabulary GPT2 = new Vocabulary(List.of(), List.of());

  /** One that puts nothing in front of a text. */
  public Vocabulary(List<Token> tokens, List<String> merges) {
    this(tokens, merges, -1, -1, Optional.empty());
  }

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
