package dev.loupe.interpret;

import dev.loupe.generate.OpenModel;
import dev.loupe.generate.ReadRequest;
import dev.loupe.generate.Token;
import dev.loupe.model.Interventions;
import dev.loupe.model.ModelInfo;
import dev.loupe.sampling.NotFiniteException;
import dev.loupe.sampling.TokenDistribution;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.stream.IntStream;

/**
 * A text read twice, by the model as it is and with {@link Interventions} or without the mask,
 * token by token.
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
  private static final int ROWS = 64; // of a map at a time

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

  /**
   * Reads a text twice, by the model as it is and as {@code request} says. Its listener hears of
   * both.
   *
   * @throws IllegalArgumentException if the text is longer than the context, or the interventions
   *     do not fit the model
   */
  public static Comparison of(OpenModel model, ReadRequest request) {
    ReadRequest plain = ReadRequest.of(request.prompt()).listener(request.listener());
    try (ActivationCache before = ActivationCache.of(model, plain, 0);
        ActivationCache after = ActivationCache.of(model, request, 0)) {
      return of(before, after);
    } catch (NotFiniteException e) {
      throw model.explain(e);
    }
  }

  /**
   * What two readings of one text differ by.
   *
   * @param before by the model as it is; it kept logprobs, as the other did
   * @throws IllegalArgumentException if they are of different texts
   */
  public static Comparison of(ActivationCache before, ActivationCache after) {
    List<Integer> ids = before.tokens().stream().map(Token::id).toList();
    if (!ids.equals(after.tokens().stream().map(Token::id).toList())) {
      throw new IllegalArgumentException("two different texts can't be compared token by token");
    }
    boolean sameHeads = before.heads() == after.heads();
    return new Comparison(
        before.model(),
        before.tokens(),
        after.tokens().stream().map(Token::logprob).toList(),
        IntStream.range(0, ids.size())
            .mapToObj(at -> divergence(before.logits(at), after.logits(at), before.sayable()))
            .toList(),
        sameHeads ? variation(before, after) : List.of());
  }

  private static double divergence(float[] before, float[] after, BitSet ids) {
    TokenDistribution p = new TokenDistribution(before, ids);
    TokenDistribution q = new TokenDistribution(after, ids);
    double sum = 0;
    for (int id = ids.nextSetBit(0); id >= 0; id = ids.nextSetBit(id + 1)) {
      double logprob = p.logprob(id);
      sum += Math.exp(logprob) * (logprob - q.logprob(id));
    }
    return Math.max(0, sum); // where both are the same but for rounding
  }

  /** Mean total variation of the rows of each head: [L][H]. */
  private static List<List<Double>> variation(ActivationCache before, ActivationCache after) {
    List<List<Double>> all = new ArrayList<>();
    for (int layer = 0; layer < before.layers(); layer++) {
      List<Double> heads = new ArrayList<>();
      for (int head = 0; head < before.heads(); head++) {
        heads.add(variation(before, after, layer, head));
      }
      all.add(heads);
    }
    return all;
  }

  private static double variation(
      ActivationCache before, ActivationCache after, int layer, int head) {
    int tokens = before.tokens().size();
    int[] one = {head};
    double sum = 0;
    for (int from = 0; from < tokens; from += ROWS) {
      int first = from;
      int to = Math.min(from + ROWS, tokens);
      float[][] rows = new float[to - from][];
      before.rebuild(
          layer,
          one,
          from,
          to,
          (_, query, p) -> rows[query - first] = Arrays.copyOf(p, before.keys(query)));
      double[] change = new double[1];
      after.rebuild(
          layer,
          one,
          from,
          to,
          (_, query, q) -> change[0] += distance(rows[query - first], q, after.keys(query)));
      sum += change[0];
    }
    return sum / tokens;
  }

  /** sum |p - q| / 2; a key that only one of them reads is 0 in the other. */
  private static double distance(float[] p, float[] q, int keysOfQ) {
    double sum = 0;
    for (int key = 0; key < Math.max(p.length, keysOfQ); key++) {
      double a = key < p.length ? p[key] : 0;
      double b = key < keysOfQ ? q[key] : 0;
      sum += Math.abs(a - b) / 2;
    }
    return sum;
  }
}
