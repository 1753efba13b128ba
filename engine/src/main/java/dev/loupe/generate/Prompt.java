package dev.loupe.generate;

import dev.loupe.text.Tokenizer;
import dev.loupe.weights.config.Gpt2Config;
import java.util.Optional;

/** What a model reads: a text, or token ids. */
public final class Prompt {
  final boolean special;
  private final Optional<String> text;
  private final int[] ids;
  private final boolean front;
  private final int length; // -1: all of it

  private Prompt(Optional<String> text, int[] ids, boolean special, boolean front, int length) {
    this.text = text;
    this.ids = ids;
    this.special = special;
    this.front = front;
    this.length = length;
  }

  /** A text; an empty one means the model's beginning-of-text token. */
  public static Prompt text(String text) {
    return new Prompt(Optional.of(text), new int[0], false, true, -1);
  }

  /** Token ids as they are; at least one. */
  public static Prompt ids(int... ids) {
    if (ids.length == 0) {
      throw new IllegalArgumentException("a request without token ids");
    }
    return new Prompt(Optional.empty(), ids.clone(), false, true, -1);
  }

  /**
   * Takes {@code <|endoftext|>} in the text as the token of that name, not as plain text, and shows
   * such tokens in what is written after it.
   */
  public Prompt special(boolean special) {
    return new Prompt(text, ids, special, front, length);
  }

  /** Whether a text gets the tokens in front that the tokenizer's files put there; it does. */
  public Prompt front(boolean front) {
    return new Prompt(text, ids, special, front, length);
  }

  /**
   * Only the first {@code n} tokens count as the prompt. The others count as written, though they
   * are read: a text that was written before, as it was.
   */
  public Prompt length(int n) {
    if (n < 1) {
      throw new IllegalArgumentException("a prompt of %d tokens: not 1 or more".formatted(n));
    }
    return new Prompt(text, ids, special, front, n);
  }

  /** Whether it takes a tokenizer to read it. */
  public boolean needsTokenizer() {
    return text.map(words -> !words.isEmpty()).orElse(false);
  }

  /** How many tokens it is, about: a text has one for every three characters. */
  public long expectedTokens() {
    return ids.length + text.map(words -> 1L + words.length() / 3).orElse(0L);
  }

  /** Its ids, or those of its text: none of an empty text, in any number. */
  public int[] tokens(Tokenizer tokenizer) {
    return text.map(words -> tokenizer.encodePrompt(words, special, front)).orElse(ids).clone();
  }

  /**
   * The tokens that a model reads: its ids, those of its text, or the beginning-of-text token.
   *
   * @throws IllegalArgumentException if the vocabulary has no such id, or if there is nothing to
   *     read
   */
  public int[] tokens(Tokenizer tokenizer, Gpt2Config config) {
    int[] tokens = tokens(tokenizer);
    if (tokens.length == 0) {
      if (config.bosTokenId() < 0) {
        throw new IllegalArgumentException(
            "the prompt is empty and the model names no beginning-of-text token");
      }
      return new int[] {config.bosTokenId()};
    }
    for (int id : tokens) {
      tokenizer.requireToken(id);
    }
    return tokens;
  }

  /** How many of {@code n} tokens that are read are the prompt's. */
  public int lengthOf(int n) {
    return length < 0 ? n : Math.min(length, n);
  }
}
