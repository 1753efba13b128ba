package dev.loupe.cuda.selftest;

import dev.loupe.cuda.kernels.SampleOptions;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.Comparator;
import java.util.List;

/** Sampling as its definitions say, in f64 but for the scores, for the kernels to be held to. */
public final class PlainSampler {
  private PlainSampler() {}

  private record Scored(int id, float score) {}

  /** The id chosen from {@code logits}, or -1 if none is allowed. */
  public static int choose(
      float[] logits,
      BitSet allowed,
      BitSet seen,
      SampleOptions options,
      int sample,
      int position) {
    List<Scored> kept = new ArrayList<>();
    float max = Float.NEGATIVE_INFINITY;
    for (int id = 0; id < logits.length; id++) {
      if (!allowed.get(id)) {
        continue;
      }
      float logit = logits[id];
      if (seen.get(id)) {
        logit =
            logit < 0 ? logit * options.repetitionPenalty() : logit / options.repetitionPenalty();
      }
      kept.add(new Scored(id, logit));
      max = Math.max(max, logit);
    }
    if (options.isGreedy()) {
      float most = max;
      return kept.stream().filter(s -> s.score() == most).mapToInt(Scored::id).min().orElse(-1);
    }
    for (int i = 0; i < kept.size(); i++) {
      kept.set(
          i, new Scored(kept.get(i).id(), (kept.get(i).score() - max) / options.temperature()));
    }
    kept.sort(Comparator.comparingDouble(Scored::score).reversed().thenComparingInt(Scored::id));
    keepTopK(kept, options.topK());
    keepTopP(kept, options.topP());
    kept.removeIf(s -> s.score() < Math.log(options.minP()));
    return draw(kept, options.seed(), sample, position);
  }

  private static void keepTopK(List<Scored> sorted, int k) {
    if (k > 0 && k < sorted.size()) {
      float last = sorted.get(k - 1).score();
      sorted.removeIf(s -> s.score() < last);
    }
  }

  private static void keepTopP(List<Scored> sorted, double p) {
    if (p == 1) {
      return;
    }
    double total = 0;
    for (Scored s : sorted) {
      total += Math.exp(s.score());
    }
    double mass = 0;
    int n = 0;
    while (mass < p * total && n < sorted.size()) {
      mass += Math.exp(sorted.get(n++).score());
    }
    sorted.subList(n, sorted.size()).clear();
  }

  private static int draw(List<Scored> kept, long seed, int sample, int position) {
    int choice = -1;
    double highest = Double.NEGATIVE_INFINITY;
    for (Scored s : kept) {
      int word = philox(seed, s.id() >>> 2, position, sample)[s.id() & 3];
      double u = (Integer.toUnsignedLong(word) + 0.5) / 0x1p32;
      double value = s.score() - Math.log(-Math.log(u));
      if (value > highest || (value == highest && s.id() < choice)) {
        highest = value;
        choice = s.id();
      }
    }
    return choice;
  }

  /** Philox4x32-10 of the counter (c0, c1, c2, 0). */
  public static int[] philox(long key, int c0, int c1, int c2) {
    return philox(key, new int[] {c0, c1, c2, 0});
  }

  /** Philox4x32-10 of a counter of four words. */
  public static int[] philox(long key, int[] counter) {
    int[] c = counter.clone();
    int[] k = {(int) key, (int) (key >>> 32)};
    for (int round = 0; round < 10; round++) {
      long p0 = 0xD2511F53L * Integer.toUnsignedLong(c[0]);
      long p1 = 0xCD9E8D57L * Integer.toUnsignedLong(c[2]);
      c =
          new int[] {
            (int) (p1 >>> 32) ^ c[1] ^ k[0], (int) p1, (int) (p0 >>> 32) ^ c[3] ^ k[1], (int) p0
          };
      k[0] += 0x9E3779B9;
      k[1] += 0xBB67AE85;
    }
    return c;
  }
}
