package dev.loupe.interpret.trace;

import dev.loupe.sampling.TokenDistribution;
import java.util.BitSet;
import java.util.Optional;

/**
 * What a trace explains: the natural log of a token's probability, or how far its logit lies above
 * that of another token.
 *
 * @param target id of the token
 * @param label how it is shown
 * @param against the other token; empty for the log-probability
 */
public record Quantity(int target, String label, Optional<Other> against) {
  /** The token that it is compared with. */
  public record Other(int id, String label) {}

  public Quantity {
    if (target < 0 || against.filter(other -> other.id < 0).isPresent()) {
      throw new IllegalArgumentException("token ids are 0 or more");
    }
    int same = target;
    if (against.filter(other -> other.id == same).isPresent()) {
      throw new IllegalArgumentException(
          "token %d against itself: no difference".formatted(target));
    }
  }

  /** Its name in JSON: {@code logprob}, or {@code logit_difference}. */
  public String kind() {
    return against.isPresent() ? "logit_difference" : "logprob";
  }

  /** In words, for the middle of a sentence. */
  public String words() {
    return against
        .map(other -> "logit difference of %s and %s".formatted(label, other.label))
        .orElse("log-probability of " + label);
  }

  /**
   * Its value.
   *
   * @param sayable the tokens that probabilities are of
   */
  double of(float[] logits, BitSet sayable) {
    return against
        .map(other -> (double) logits[target] - logits[other.id])
        .orElseGet(() -> new TokenDistribution(logits, sayable).logprob(target));
  }
}
