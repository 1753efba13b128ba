package dev.loupe.sampling;

/**
 * How the next token is chosen from the logits, applied in this order, as in Hugging Face's
 * generate: repetition penalty, temperature, top-k, top-p, min-p, draw. OpenAI's penalties come
 * after the repetition penalty, as in vLLM.
 *
 * @param temperature divides the logits; 0 takes the most likely token
 * @param topK keeps the k most likely tokens and those that tie with the last; 0 keeps all
 * @param topP keeps the most likely tokens up to and with the one that brings their probability to
 *     p (Holtzman et al., arXiv 1904.09751); 1 keeps all, 0 takes the most likely token
 * @param minP drops tokens less likely than p times the most likely; 0 keeps all
 * @param repetitionPenalty divides the positive and multiplies the negative logits of tokens that
 *     the run has seen (Keskar et al., arXiv 1909.05858); 1 changes nothing
 * @param presencePenalty is taken from the logits of tokens that the text has, -2 to 2; as in vLLM,
 *     a prompt's tokens don't count
 * @param frequencyPenalty likewise, times how often the text has the token
 * @param seed the same seed draws the same tokens
 */
public record Sampling(
    double temperature,
    int topK,
    double topP,
    double minP,
    double repetitionPenalty,
    double presencePenalty,
    double frequencyPenalty,
    long seed) {

  public Sampling {
    if (!(temperature >= 0 && temperature < 1e6)) {
      throw new IllegalArgumentException("temperature %s: not 0 or more".formatted(temperature));
    }
    if (topK < 0) {
      throw new IllegalArgumentException("top-k %d: not 0 or more".formatted(topK));
    }
    if (!(topP >= 0 && topP <= 1)) {
      throw new IllegalArgumentException("top-p %s: not between 0 and 1".formatted(topP));
    }
    if (!(minP >= 0 && minP <= 1)) {
      throw new IllegalArgumentException("min-p %s: not between 0 and 1".formatted(minP));
    }
    if (!(repetitionPenalty > 0 && repetitionPenalty < 1e6)) {
      throw new IllegalArgumentException(
          "repetition penalty %s: not positive".formatted(repetitionPenalty));
    }
    requirePenalty("presence", presencePenalty);
    requirePenalty("frequency", frequencyPenalty);
  }

  /** Without the two penalties that depend on the text alone. */
  public Sampling(
      double temperature, int topK, double topP, double minP, double repetitionPenalty, long seed) {
    this(temperature, topK, topP, minP, repetitionPenalty, 0, 0, seed);
  }

  private static void requirePenalty(String name, double penalty) {
    if (!(penalty >= -2 && penalty <= 2)) {
      throw new IllegalArgumentException(
          "%s penalty %s: not between -2 and 2".formatted(name, penalty));
    }
  }

  /** Always the most likely token, the lower id among equals. */
  public static Sampling greedy() {
    return new Sampling(0, 0, 1, 0, 1, 0);
  }

  /** Draws from the model's own distribution. */
  public static Sampling seeded(long seed) {
    return new Sampling(1, 0, 1, 0, 1, seed);
  }

  /**
   * The same settings at another temperature.
   *
   * @param t 0 or more, below a million; 0 takes the likeliest token
   * @throws IllegalArgumentException if it is not
   */
  public Sampling withTemperature(double t) {
    return new Sampling(
        t, topK, topP, minP, repetitionPenalty, presencePenalty, frequencyPenalty, seed);
  }

  /**
   * The same settings with another top-k.
   *
   * @param k tokens to draw from; 0 for all
   * @throws IllegalArgumentException if it is negative
   */
  public Sampling withTopK(int k) {
    return new Sampling(
        temperature, k, topP, minP, repetitionPenalty, presencePenalty, frequencyPenalty, seed);
  }

  /**
   * The same settings with another top-p.
   *
   * @param p probability of the tokens to draw from, 0 to 1; 1 for all
   * @throws IllegalArgumentException if it is not
   */
  public Sampling withTopP(double p) {
    return new Sampling(
        temperature, topK, p, minP, repetitionPenalty, presencePenalty, frequencyPenalty, seed);
  }

  /**
   * The same settings with another min-p.
   *
   * @param p least probability as a part of the likeliest token's, 0 to 1
   * @throws IllegalArgumentException if it is not
   */
  public Sampling withMinP(double p) {
    return new Sampling(
        temperature, topK, topP, p, repetitionPenalty, presencePenalty, frequencyPenalty, seed);
  }

  /**
   * The same settings with another repetition penalty.
   *
   * @param p above 0; above 1 discourages tokens that the text has
   * @throws IllegalArgumentException if it is not
   */
  public Sampling withRepetitionPenalty(double p) {
    return new Sampling(temperature, topK, topP, minP, p, presencePenalty, frequencyPenalty, seed);
  }

  /**
   * The same settings with other presence and frequency penalties.
   *
   * @param presence subtracted from the logits of tokens that the text has, -2 to 2
   * @param frequency subtracted once per occurrence, -2 to 2
   * @throws IllegalArgumentException if one is not
   */
  public Sampling withPenalties(double presence, double frequency) {
    return new Sampling(
        temperature, topK, topP, minP, repetitionPenalty, presence, frequency, seed);
  }

  /** Whether tokens that the text already has count: a presence or frequency penalty is set. */
  public boolean countsTokens() {
    return presencePenalty != 0 || frequencyPenalty != 0;
  }

  /** Whether the draw is certain: temperature or top-p is 0. */
  public boolean isGreedy() {
    return (float) temperature == 0 || topP == 0;
  }
}
