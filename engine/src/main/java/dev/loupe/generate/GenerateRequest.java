package dev.loupe.generate;

import dev.loupe.attention.AttentionSelection;
import dev.loupe.model.Interventions;
import dev.loupe.sampling.Sampling;
import dev.loupe.weights.config.Gpt2Config;
import java.util.BitSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;

/**
 * What to read and what to write. Start from {@link #text} or {@link #ids} and add what differs
 * from the defaults: 100 tokens or what the context has room for, drawn from the model's own
 * distribution with seed 0, one sample, no attention, no logprobs.
 */
public final class GenerateRequest {
  /** Tokens to write when nobody says how many. */
  public static final int DEFAULT_TOKENS = 100;

  /** Hears from a run while it goes on, on the thread that runs it. */
  public interface Listener extends ReadListener {
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

    @Override
    default boolean reading(int layersDone, int layers) {
      return true;
    }
  }

  final Prompt prompt;
  int tokens = -1;
  Sampling sampling = Sampling.seeded(0);
  int samples = 1;
  List<String> stops = List.of();
  Optional<AttentionSelection> attention = Optional.empty();
  int logprobs = -1;
  boolean slide;
  Interventions interventions = Interventions.NONE;
  int firstSample;
  boolean readAgain;
  boolean ignoreEos;
  int minTokens;
  Set<Integer> stopTokens = Set.of();
  Listener listener = Listener.NONE;

  private GenerateRequest(Prompt prompt) {
    this.prompt = prompt;
  }

  /** Continues a prompt. */
  public static GenerateRequest of(Prompt prompt) {
    return new GenerateRequest(prompt);
  }

  /** Continues {@code text}; an empty text means the model's beginning-of-text token. */
  public static GenerateRequest text(String text) {
    return of(Prompt.text(text));
  }

  /** Continues these token ids as they are; at least one. */
  public static GenerateRequest ids(int... ids) {
    return of(Prompt.ids(ids));
  }

  /** Whether it takes a tokenizer: to read a text that is not empty, or to find stop strings. */
  public boolean needsText() {
    return prompt.needsTokenizer() || !stops.isEmpty();
  }

  /** How many tokens it takes to read and write, about; 0 where it says no number. */
  public long expectedTokens() {
    return tokens < 0 ? 0 : prompt.expectedTokens() + (long) tokens * samples;
  }

  /** Writes at most {@code n} tokens; 0 only reads. */
  public GenerateRequest tokens(int n) {
    if (n < 0) {
      throw new IllegalArgumentException("%d tokens to write: not 0 or more".formatted(n));
    }
    this.tokens = n;
    return this;
  }

  /** How tokens are chosen. */
  public GenerateRequest sampling(Sampling sampling) {
    this.sampling = sampling;
    return this;
  }

  /** Writes {@code n} continuations of the same prompt at once, each with draws of its own. */
  public GenerateRequest samples(int n) {
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
  public GenerateRequest firstSample(int n) {
    if (n < 0) {
      throw new IllegalArgumentException("first sample %d: not 0 or more".formatted(n));
    }
    this.firstSample = n;
    return this;
  }

  /** Writes on after an end-of-text token of the model's, as if it were any other token. */
  public GenerateRequest ignoreEos(boolean ignore) {
    this.ignoreEos = ignore;
    return this;
  }

  /**
   * Writes at least {@code n} tokens, unless the listener or an interrupt ends the run: until then
   * no token that ends the text is chosen, and no stop string is looked for.
   */
  public GenerateRequest minTokens(int n) {
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
  public GenerateRequest stopTokens(Set<Integer> ids) {
    this.stopTokens = Set.copyOf(ids);
    return this;
  }

  /**
   * Ends the run where the model can still read all of it: the last token has a position too. Runs
   * that keep attention always do. Otherwise the last token needs none, for nothing is predicted
   * from it.
   */
  public GenerateRequest readAgain(boolean again) {
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
  public GenerateRequest stops(List<String> stops) {
    this.stops = List.copyOf(stops);
    return this;
  }

  /** Keeps attention maps. */
  public GenerateRequest attention(AttentionSelection selection) {
    this.attention = Optional.of(selection);
    return this;
  }

  /** Keeps every token's logprob and rank, and the {@code top} most likely tokens at its place. */
  public GenerateRequest logprobs(int top) {
    if (top < 0) {
      throw new IllegalArgumentException("the top %d tokens: not 0 or more".formatted(top));
    }
    this.logprobs = top;
    return this;
  }

  /** Changes heads of the model for this run alone. */
  public GenerateRequest interventions(Interventions interventions) {
    this.interventions = interventions;
    return this;
  }

  /**
   * When the context is full, forgets its older half and reads the rest anew from position 0,
   * instead of refusing; the run says how many tokens it forgot.
   */
  public GenerateRequest slide(boolean slide) {
    this.slide = slide;
    return this;
  }

  /** Who hears of the text while it is written, on the thread that runs the request. */
  public GenerateRequest listener(Listener listener) {
    this.listener = listener;
    return this;
  }
}
