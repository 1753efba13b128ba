package dev.loupe.sampling;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.Comparator;
import java.util.List;
import java.util.PriorityQueue;

/**
 * The model's own distribution over the next token: the log-softmax, in f64, of the logits of the
 * tokens that can be said. Other rows of the vocabulary only pad it and have no part in it.
 */
public final class TokenDistribution {
  /** A token and the natural log of its probability. */
  public record Entry(int id, double logprob) {}

  private final float[] logits;
  private final BitSet ids;
  private final double logSum;

  /**
   * The softmax of {@code logits}, which are kept, not copied.
   *
   * @param ids those that can be said; at least one
   */
  public TokenDistribution(float[] logits, BitSet ids) {
    float max = Float.NEGATIVE_INFINITY;
    for (int id = ids.nextSetBit(0); id >= 0; id = ids.nextSetBit(id + 1)) {
      max = Math.max(max, logits[id]);
    }
    double sum = 0;
    for (int id = ids.nextSetBit(0); id >= 0; id = ids.nextSetBit(id + 1)) {
      sum += Math.exp((double) logits[id] - max);
    }
    this.logits = logits;
    this.ids = ids;
    this.logSum = max + Math.log(sum);
  }

  /** Natural log of the probability of {@code id}, which is one of those that can be said. */
  public double logprob(int id) {
    return logits[id] - logSum;
  }

  /** How many tokens are more likely than {@code id}. */
  public int rank(int id) {
    int rank = 0;
    for (int other = ids.nextSetBit(0); other >= 0; other = ids.nextSetBit(other + 1)) {
      if (logits[other] > logits[id]) {
        rank++;
      }
    }
    return rank;
  }

  /** The {@code k} most likely tokens, best first, lower ids first among equals. */
  public List<Entry> top(int k) {
    Comparator<Integer> worse =
        Comparator.<Integer>comparingDouble(id -> logits[id])
            .thenComparing(Comparator.reverseOrder());
    PriorityQueue<Integer> best = new PriorityQueue<>(worse);
    for (int id = ids.nextSetBit(0); id >= 0 && k > 0; id = ids.nextSetBit(id + 1)) {
      if (best.size() < k) {
        best.add(id);
      } else if (logits[id] > logits[best.element()]) {
        best.remove();
        best.add(id);
      }
    }
    List<Entry> entries = new ArrayList<>();
    while (!best.isEmpty()) {
      int id = best.remove();
      entries.addFirst(new Entry(id, logprob(id)));
    }
    return entries;
  }
}
