package dev.loupe.generate;

import dev.loupe.attention.AttentionSelection;
import dev.loupe.model.Interventions;
import dev.loupe.ops.Mask;
import dev.loupe.sampling.Sampling;
import dev.loupe.weights.Gpt2Config;
import java.util.BitSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;

/**
 * What to read and what to write. Start from {@link #text} or {@link #ids} and add what differs
 * from the defaults: 100 tokens or what the context has room for, drawn from the model's own
 * distribution with seed 0, one sample, no attention, no logprobs.
 */
public final class Request {
  /** Tokens to write when nobody says how many. */
  public static final int DEFAULT_TOKENS = 100;

  /** Hears from a run while it goes on, on the thread that runs it. */
  public interface Listener {
    /** Hears nothing. */
    Listener NONE = new Listener() {};

    /**
     * New text of a sample, whole characters only. Of a model whose tokens are no text: the empty
     * string, after each token.
     *
     * @return false to end the run here and keep what it has
     */
    default boolean text(int sample, String piece) {
      return true;
    }

    /**
     * A sample has a new token, before its text comes.
     *
     * @param logprob natural log of its probability; NaN unless logprobs were asked for
     */
    default void token(int sample, int id, double logprob) {}

    /**
     * How far reading the prompt has come.
     *
     * @return false to end the run, which then throws CancellationException
     */
    default boolean reading(int layersDone, int layers) {
      return true;
    }
  }

  public final Optional<String> text;
  public final int[] ids;
  int tokens = -1;
  Sampling sampling = Sampling.seeded(0);
  int samples = 1;
  List<String> stops = List.of();
  Optional<AttentionSelection> attention = Optional.empty();
  public int logprobs = -1;
  boolean slide;
  public boolean special;
  public boolean front = true;
  public Interventions interventions = Interventions.NONE;
  public Mask mask = Mask.CAUSAL;
  int promptLength = -1;
  int firstSample;
  boolean readAgain;
  boolean ignoreEos;
  int minTokens;
  Set<Integer> stopTokens = Set.of();
  public Listener listener = Listener.NONE;

  private Request(Optional<String> text, int[] ids) {
    this.text = text;
    this.ids = ids;
  }

  /** Reads {@code text}; an empty text means the model's beginning-of-text token. */
  public static Request text(String text) {
    return new Request(Optional.of(text), new int[0]);
  }

  /** Reads these token ids as they are; at least one. */
  public static Request ids(int... ids) {
    if (ids.length == 0) {
      throw new IllegalArgumentException("a request without token ids");
    }
    return new Request(Optional.empty(), ids.clone());
  }

  /** Whether it takes a tokenizer: to read a text that is not empty, or to find stop strings. */
  public boolean needsText() {
    return text.map(words -> !words.isEmpty()).orElse(false) || !stops.isEmpty();
  }

  /** Writes at most {@code n} tokens; 0 only reads. */
  public Request tokens(int n) {
    if (n < 0) {
      throw new IllegalArgumentException("%d tokens to write: not 0 or more".formatted(n));
    }
    this.tokens = n;
    return this;
  }

  public Request sampling(Sampling sampling) {
    this.sampling = sampling;
    return this;
  }

  /** Writes {@code n} continuations of the same prompt at once, each with draws of its own. */
  public Request samples(int n) {
    if (n < 1 || n > 1024) {
      throw new IllegalArgumentException("%d samples: not 1 to 1024".formatted(n));
    }
    this.samples = n;
    return this;
  }

  /**
   * Numbers the draws of the samples from {@code n} on: sample s is drawn as sample n + s of a
   * request without this. So several requests with one seed need not draw the same.
   */
  public Request firstSample(int n) {
    if (n < 0) {
      throw new IllegalArgumentException("first sample %d: not 0 or more".formatted(n));
    }
    this.firstSample = n;
    return this;
  }

  /** Writes on after an end-of-text token of the model's, as if it were any other token. */
  public Request ignoreEos(boolean ignore) {
    this.ignoreEos = ignore;
    return this;
  }

  /**
   * Writes at least {@code n} tokens, unless the listener or an interrupt ends the run: until then
   * no token that ends the text is chosen, and no stop string is looked for.
   */
  public Request minTokens(int n) {
    if (n < 0) {
      throw new IllegalArgumentException("at least %d tokens: not 0 or more".formatted(n));
    }
    this.minTokens = n;
    return this;
  }

  /**
   * Ends the text at the first of these tokens that is written, whether they are ignored otherwise
   * or not. The token counts as written; its text is left out, as an end-of-text token's.
   */
  public Request stopTokens(Set<Integer> ids) {
    this.stopTokens = Set.copyOf(ids);
    return this;
  }

  /**
   * Ends the run where the model can still read all of it: the last token has a position too. Runs
   * that keep attention always do. Otherwise the last token needs none, for nothing is predicted
   * from it.
   */
  public Request readAgain(boolean again) {
    this.readAgain = again;
    return this;
  }

  /** Whether the last token of the run is to have a position. */
  boolean lastHasPosition() {
    return readAgain || attention.isPresent();
  }

  /** The ids of tokens that end a text. */
  BitSet endTokens(Gpt2Config config) {
    BitSet ids = new BitSet();
    stopTokens.forEach(ids::set);
    if (!ignoreEos) {
      config.eosTokenIds().forEach(ids::set);
    }
    return ids;
  }

  /** Ends the text before the first of these strings that appears in it. */
  public Request stops(List<String> stops) {
    this.stops = List.copyOf(stops);
    return this;
  }

  /** Keeps attention maps. */
  public Request attention(AttentionSelection selection) {
    this.attention = Optional.of(selection);
    return this;
  }

  /** Keeps every token's logprob and rank, and the {@code top} most likely tokens at its place. */
  public Request logprobs(int top) {
    if (top < 0) {
      throw new IllegalArgumentException("the top %d tokens: not 0 or more".formatted(top));
    }
    this.logprobs = top;
    return this;
  }

  /** Changes heads of the model for this run alone. */
  public Request interventions(Interventions interventions) {
    this.interventions = interventions;
    return this;
  }

  /**
   * Lets each token read those after it too; to be compared with what the model makes of a text,
   * not to write one.
   */
  public Request mask(Mask mask) {
    this.mask = mask;
    return this;
  }

  /**
   * Only the first {@code n} of the tokens are the prompt, and the others count as written though
   * they are read: a text that was written once, as it was.
   */
  public Request promptLength(int n) {
    if (n < 1) {
      throw new IllegalArgumentException("a prompt of %d tokens: not 1 or more".formatted(n));
    }
    this.promptLength = n;
    return this;
  }

  /** How many of {@code n} tokens to read are the prompt's. */
  public int promptOf(int n) {
    return promptLength < 0 ? n : Math.min(promptLength, n);
  }

  /**
   * When the context is full, forgets its older half and reads the rest anew from position 0,
   * instead of refusing; the run says how many tokens it forgot.
   */
  public Request slide(boolean slide) {
    this.slide = slide;
    return this;
  }

  /**
   * Takes {@code <|endoftext|>} in the text as the token of that name, not as plain text, and shows
   * such tokens in the text that is written.
   */
  public Request special(boolean special) {
    this.special = special;
    return this;
  }

  /** Whether a text gets the tokens in front that the tokenizer's files put there; it does. */
  public Request front(boolean front) {
    this.front = front;
    return this;
  }

  public Request listener(Listener listener) {
    this.listener = listener;
    return this;
  }
}
