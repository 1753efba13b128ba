package dev.loupe.sampling;

import java.util.Arrays;
import java.util.BitSet;

/**
 * Chooses the next token. The draw is by Gumbel-max: the kept token with the largest logit plus
 * Gumbel noise, which follows the softmax (Maddison, Tarlow and Minka, arXiv 1411.0030). The noise
 * is a pure function of seed, sample, position and token id, so a draw needs no state and no
 * cumulative sum, and can be repeated on other hardware.
 *
 * <p>Has scratch of its own and serves one thread.
 */
public final class Sampler {
  private static final int[] NONE = {};
  private static final BitSet NO_IDS = new BitSet();

  /** {@link #largestNoise}, by the number of ones and the four bits. */
  private static final double[] LARGEST_NOISE = new double[33 << 4];

  static {
    for (int zeros = 0; zeros <= 32; zeros++) {
      for (int next = 0; next < 16; next++) {
        int least = (int) ((16L + next) << 27 >>> zeros); // of ~bits
        LARGEST_NOISE[zeros << 4 | next] = gumbel(~least);
      }
    }
  }

  private final Sampling sampling;
  private final int[] allowed; // ascending
  private final int[] ids;
  private final float[] scores;
  private final float[] ordered;
  private final long[] keys;
  private final double[] weights;
  private final int[] noise = new int[4];
  private int[] counts = new int[0]; // of each id in the text; zeros between calls

  /**
   * @param allowed the ids that may be chosen: those that can be said
   */
  public Sampler(Sampling sampling, BitSet allowed) {
    this.sampling = sampling;
    this.allowed = allowed.stream().toArray();
    int n = this.allowed.length;
    ids = new int[n];
    scores = new float[n];
    ordered = new float[n];
    keys = new long[n];
    weights = new double[n];
  }

  /** Whether {@link #next} depends on how often the text has a token. */
  public boolean countsTokens() {
    return sampling.countsTokens();
  }

  /** {@link #next(float[], BitSet, int[], int, int)} of a text of which no token counts. */
  public int next(float[] logits, BitSet seen, int sample, int position) {
    return next(logits, seen, NONE, sample, position);
  }

  /** {@link #next(float[], BitSet, int[], BitSet, int, int)} where none is banned. */
  public int next(float[] logits, BitSet seen, int[] text, int sample, int position) {
    return next(logits, seen, text, NO_IDS, sample, position);
  }

  /**
   * The next token.
   *
   * @param logits one for each row of the vocabulary
   * @param seen ids in the run so far, for the repetition penalty
   * @param text ids written so far, for the presence and frequency penalties
   * @param banned ids that are not chosen this time, though they are allowed
   * @param sample number of the sample among those of one prompt
   * @param position place of the chosen token in the run
   * @throws NotFiniteException if a logit is NaN or infinite
   * @throws IllegalArgumentException if all are banned that are allowed
   */
  public int next(
      float[] logits, BitSet seen, int[] text, BitSet banned, int sample, int position) {
    requireFinite(logits);
    count(text, logits.length);
    int n = 0;
    float penalty = (float) sampling.repetitionPenalty();
    float presence = (float) sampling.presencePenalty();
    float frequency = (float) sampling.frequencyPenalty();
    for (int id : allowed) {
      if (id >= logits.length) {
        break;
      }
      if (banned.get(id)) {
        continue;
      }
      float score = logits[id];
      if (penalty != 1 && seen.get(id)) {
        score = score < 0 ? score * penalty : score / penalty;
      }
      if (text.length > 0 && counts[id] > 0) {
        score -= presence + frequency * counts[id];
      }
      ids[n] = id;
      scores[n++] = score;
    }
    for (int id : text) {
      counts[id] = 0;
    }
    if (n == 0) {
      throw new IllegalArgumentException("every token would end the text too early");
    }
    if (sampling.isGreedy()) {
      return ids[best(n)];
    }
    // relative to the largest, so that a small temperature can't overflow
    float temperature = (float) sampling.temperature();
    float max = scores[best(n)];
    for (int i = 0; i < n; i++) {
      scores[i] = (scores[i] - max) / temperature;
    }
    n = keepTopK(n);
    n = keepTopP(n);
    n = keepMinP(n);
    return draw(n, sample, position);
  }

  private void count(int[] text, int vocabulary) {
    if (text.length > 0 && counts.length < vocabulary) {
      counts = new int[vocabulary];
    }
    for (int id : text) {
      counts[id]++;
    }
  }

  /**
   * Passes finite logits.
   *
   * @throws NotFiniteException if one is NaN or infinite
   */
  public static void requireFinite(float[] logits) {
    for (float logit : logits) {
      if (!Float.isFinite(logit)) {
        throw new NotFiniteException("a logit is " + logit);
      }
    }
  }

  private int best(int n) {
    int best = 0;
    for (int i = 1; i < n; i++) {
      if (scores[i] > scores[best]) {
        best = i;
      }
    }
    return best;
  }

  private int keepTopK(int n) {
    int k = sampling.topK();
    if (k == 0 || k >= n) {
      return n;
    }
    System.arraycopy(scores, 0, ordered, 0, n);
    float threshold = kthLargest(ordered, n, k);
    return keepFrom(threshold, n);
  }

  /** Keeps the scores that are at least {@code threshold}, in their order. */
  private int keepFrom(double threshold, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++) {
      if (scores[i] >= threshold) {
        ids[kept] = ids[i];
        scores[kept++] = scores[i];
      }
    }
    return kept;
  }

  private int keepTopP(int n) {
    double p = sampling.topP();
    if (p == 1) {
      return n;
    }
    double total = 0;
    for (int i = 0; i < n; i++) {
      weights[i] = Math.exp(scores[i]); // the largest score is 0
      total += weights[i];
    }
    // The rarest tokens have less than 1 - p together if each has less than (1 - p) / n: they are
    // outside, and only the others need sorting.
    double floor = Math.max(total * (1 - p) / n, Double.MIN_NORMAL); // at most 1
    int candidates = 0;
    for (int i = 0; i < n; i++) {
      if (weights[i] >= floor) {
        keys[candidates++] = descending(scores[i], ids[i]);
      }
    }
    Arrays.sort(keys, 0, candidates);
    double mass = 0;
    int kept = 0;
    while (kept < candidates && mass < p * total) {
      float score = score(keys[kept]);
      ids[kept] = (int) keys[kept];
      scores[kept++] = score;
      mass += Math.exp(score);
    }
    return kept;
  }

  private int keepMinP(int n) {
    if (sampling.minP() == 0) {
      return n;
    }
    return keepFrom(Math.log(sampling.minP()), n);
  }

  private int draw(int n, int sample, int position) {
    int choice = -1;
    double highest = Double.NEGATIVE_INFINITY;
    int drawn = -1;
    for (int i = 0; i < n; i++) {
      int block = ids[i] >>> 2;
      if (block != drawn) {
        Philox.block(sampling.seed(), block, position, sample, 0, noise);
        drawn = block;
      }
      int bits = noise[ids[i] & 3];
      if (scores[i] + largestNoise(bits) < highest) {
        continue; // as nearly all: the noise itself takes two logarithms
      }
      double value = scores[i] + gumbel(bits);
      if (value > highest || (value == highest && ids[i] < choice)) {
        highest = value;
        choice = ids[i];
      }
    }
    return choice;
  }

  /** Standard Gumbel noise from 32 random bits, u = (bits + 1/2) / 2^32. */
  static double gumbel(int bits) {
    double u = (Integer.toUnsignedLong(bits) + 0.5) * 0x1p-32;
    return -Math.log(-Math.log(u));
  }

  /**
   * As much noise as such bits have at most: of those that begin with as many ones, and have the
   * same four bits behind the zero that ends these. For noise never falls as the bits rise, since
   * {@link Math#log} does not.
   */
  static double largestNoise(int bits) {
    int zeros = Integer.numberOfLeadingZeros(~bits);
    return LARGEST_NOISE[zeros << 4 | ~bits << zeros << 1 >>> 28];
  }

  /** A key that sorts by falling score, then by rising id. */
  private static long descending(float score, int id) {
    int bits = Float.floatToIntBits(score);
    int ascending = bits < 0 ? bits ^ 0x7fffffff : bits;
    return (long) ~ascending << 32 | id;
  }

  private static float score(long key) {
    int ascending = ~(int) (key >> 32);
    return Float.intBitsToFloat(ascending < 0 ? ascending ^ 0x7fffffff : ascending);
  }

  /** The k-th largest of x[0 .. n - 1], whose order changes (Hoare's quickselect). */
  static float kthLargest(float[] x, int n, int k) {
    int low = 0;
    int high = n - 1;
    int target = n - k; // its index in ascending order
    while (low < high) {
      float pivot = x[(low + high) >>> 1];
      int i = low;
      int j = high;
      while (i <= j) {
        while (x[i] < pivot) {
          i++;
        }
        while (x[j] > pivot) {
          j--;
        }
        if (i <= j) {
          float swap = x[i];
          x[i++] = x[j];
          x[j--] = swap;
        }
      }
      if (target <= j) {
        high = j;
      } else if (target >= i) {
        low = i;
      } else {
        break;
      }
    }
    return x[target];
  }
}
