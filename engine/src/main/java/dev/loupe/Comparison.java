package dev.loupe;

import java.util.List;

/**
 * A text read twice, by the model as it is and with {@link Interventions}, token by token.
 *
 * @param model where it came from
 * @param tokens the text; logprobs and ranks are those of the model as it is
 * @param logprobs [T]: natural log of each token's probability with the interventions; NaN first
 * @param divergences [T]: after each token, the Kullback-Leibler divergence of what would be said
 *     next with the interventions from what the model as it is would say, sum p log(p / q), in nats
 * @param maps [L][H]: how much of each head's attention went elsewhere, on average over rows: the
 *     total variation, sum |p - q| / 2, 0 to 1; empty if the heads are other ones
 */
public record Comparison(
    ModelInfo model,
    List<Token> tokens,
    List<Double> logprobs,
    List<Double> divergences,
    List<List<Double>> maps) {
  public Comparison {
    tokens = List.copyOf(tokens);
    logprobs = List.copyOf(logprobs);
    divergences = List.copyOf(divergences);
    maps = maps.stream().map(List::copyOf).toList();
  }

  /** Mean logprob of the tokens but the first, by the model as it is; NaN of one token. */
  public double meanBefore() {
    return tokens.stream().skip(1).mapToDouble(Token::logprob).average().orElse(Double.NaN);
  }

  /** Likewise with the interventions. */
  public double meanAfter() {
    return logprobs.stream().skip(1).mapToDouble(v -> v).average().orElse(Double.NaN);
  }
}
