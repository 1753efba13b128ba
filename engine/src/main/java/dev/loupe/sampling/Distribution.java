package dev.loupe.sampling;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.PriorityQueue;

/** The model's own distribution over the next token: the log-softmax of its logits, in f64. */
public final class Distribution {
  /** A token and the natural log of its probability. */
  public record Entry(int id, double logprob) {}

  private final float[] logits;
  private final double logSum;

  /** The softmax of {@code logits}, which are kept, not copied. */
  public Distribution(float[] logits) {
    float max = Float.NEGATIVE_INFINITY;
    for (float logit : logits) {
      max = Math.max(max, logit);
    }
    double sum = 0;
    for (float logit : logits) {
      sum += Math.exp((double) logit - max);
    }
    this.logits = logits;
    this.logSum = max + Math.log(sum);
  }

  /** Natural log of the probability of {@code id}. */
  public double logprob(int id) {
    return logits[id] - logSum;
  }

  /** How many tokens are more likely than {@code id}. */
  public int rank(int id) {
    int rank = 0;
    for (float logit : logits) {
      if (logit > logits[id]) {
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
    for (int id = 0; id < logits.length && k > 0; id++) {
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
