package dev.loupe.sampling;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class SamplerTest {
  private static final BitSet NONE = new BitSet();

  private static BitSet ids(int n) {
    BitSet all = new BitSet();
    all.set(0, n);
    return all;
  }

  private static BitSet seen(int... ids) {
    BitSet set = new BitSet();
    Arrays.stream(ids).forEach(set::set);
    return set;
  }

  /** Everything that many draws can bring. */
  private static Set<Integer> drawn(Sampling sampling, float... logits) {
    Sampler sampler = new Sampler(sampling, ids(logits.length));
    TreeSet<Integer> drawn = new TreeSet<>();
    for (int position = 0; position < 2000; position++) {
      drawn.add(sampler.next(logits, NONE, 0, position));
    }
    return drawn;
  }

  private static float[] logs(double... probabilities) {
    float[] logits = new float[probabilities.length];
    for (int i = 0; i < logits.length; i++) {
      logits[i] = (float) Math.log(probabilities[i]);
    }
    return logits;
  }

  /** The known answers that the authors of Philox publish with their library Random123. */
  @Test
  void philoxGivesTheKnownAnswers() {
    int[] out = new int[4];
    Philox.block(0, 0, 0, 0, 0, out);
    assertArrayEquals(new int[] {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, out);
    Philox.block(-1, -1, -1, -1, -1, out);
    assertArrayEquals(new int[] {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}, out);
    Philox.block(0x299f31d0_a4093822L, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, out);
    assertArrayEquals(new int[] {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}, out);
  }

  @Test
  void greedyTakesTheLargestAndTheLowerIdAmongEquals() {
    Sampler sampler = new Sampler(Sampling.greedy(), ids(4));
    assertEquals(1, sampler.next(new float[] {1, 5, 5, 2}, NONE, 0, 0));
    Sampling zeroTopP = Sampling.seeded(3).withTopP(0);
    assertEquals(2, new Sampler(zeroTopP, ids(3)).next(new float[] {1, 2, 3}, NONE, 0, 0));
  }

  @Test
  void penaltiesOfTheTextCountWhatItHas() {
    float[] logits = {3, 2.6f, 2.5f, 1};
    Sampler presence = new Sampler(Sampling.greedy().withPenalties(0.45, 0), ids(4));
    assertEquals(0, presence.next(logits, NONE, new int[] {1, 1}, 0, 0));
    assertEquals(1, presence.next(logits, NONE, new int[] {0, 0, 0}, 0, 0), "2.55");
    Sampler frequency = new Sampler(Sampling.greedy().withPenalties(0, 0.3), ids(4));
    assertEquals(0, frequency.next(logits, NONE, new int[] {0}, 0, 0), "2.7");
    assertEquals(1, frequency.next(logits, NONE, new int[] {0, 3, 0}, 0, 0), "2.4");
    assertEquals(2, frequency.next(logits, NONE, new int[] {0, 1, 0}, 0, 0), "2.4 and 2.3");
    assertEquals(0, frequency.next(logits, NONE, 0, 0), "nothing stays");
    Sampler both = new Sampler(Sampling.greedy().withPenalties(1, -0.5), ids(4));
    assertEquals(1, both.next(logits, NONE, new int[] {0}, 0, 0), "2.5");
    assertEquals(0, both.next(logits, NONE, new int[] {0, 0}, 0, 0), "they cancel");
    assertEquals(0, both.next(logits, NONE, new int[] {0, 0, 3, 3, 3, 3}, 0, 0), "2 at most");
    assertArrayEquals(new float[] {3, 2.6f, 2.5f, 1}, logits);
    for (double bad : new double[] {2.01, -2.01, Double.NaN}) {
      assertThrows(IllegalArgumentException.class, () -> Sampling.greedy().withPenalties(bad, 0));
      assertThrows(IllegalArgumentException.class, () -> Sampling.greedy().withPenalties(0, bad));
    }
  }

  @Test
  void penaltyCountsEachIdOnceAndMindsTheSign() {
    Sampling sampling = Sampling.greedy().withRepetitionPenalty(2);
    Sampler sampler = new Sampler(sampling, ids(3));
    assertEquals(1, sampler.next(new float[] {3, 2, 0}, seen(0), 0, 0), "3 / 2 is below 2");
    assertEquals(0, sampler.next(new float[] {4.2f, 2, 0}, seen(0), 0, 0), "4.2 / 2 is not");
    assertEquals(2, sampler.next(new float[] {-1, -3, -1.5f}, seen(0), 0, 0), "-1 * 2 is -2");
  }

  @Test
  void topKKeepsTies() {
    assertEquals(
        new TreeSet<>(List.of(1, 2, 4)),
        drawn(Sampling.seeded(1).withTopK(2), 0, 2, 1.5f, -1, 1.5f));
    assertEquals(new TreeSet<>(List.of(1)), drawn(Sampling.seeded(1).withTopK(1), 0, 2, 1.5f));
  }

  @Test
  void topPKeepsTheCrossingToken() {
    float[] logits = logs(0.1, 0.5, 0.15, 0.25);
    assertEquals(new TreeSet<>(List.of(1)), drawn(Sampling.seeded(1).withTopP(0.45), logits));
    assertEquals(new TreeSet<>(List.of(1, 3)), drawn(Sampling.seeded(1).withTopP(0.6), logits));
    assertEquals(new TreeSet<>(List.of(1, 2, 3)), drawn(Sampling.seeded(1).withTopP(0.8), logits));
    // after top-k the rest is renormalised: of {0.5, 0.25} the first has two thirds
    assertEquals(
        new TreeSet<>(List.of(1)), drawn(Sampling.seeded(1).withTopK(2).withTopP(0.6), logits));
  }

  @Test
  void topPTakesTheLowerIdAmongEquals() {
    float[] equal = {1, 1, 1, 1};
    assertEquals(new TreeSet<>(List.of(0, 1)), drawn(Sampling.seeded(1).withTopP(0.5), equal));
  }

  @Test
  void minPIsRelativeToTheMostLikely() {
    float[] logits = logs(0.6, 0.29, 0.06, 0.05);
    assertEquals(new TreeSet<>(List.of(0, 1)), drawn(Sampling.seeded(1).withMinP(0.2), logits));
  }

  @Test
  void temperatureComesBeforeTopP() {
    // at temperature 0.25 the first token holds nearly all of the probability
    float[] logits = logs(0.5, 0.3, 0.2);
    Sampling sampling = Sampling.seeded(1).withTopP(0.8);
    assertEquals(new TreeSet<>(List.of(0, 1)), drawn(sampling, logits));
    assertEquals(new TreeSet<>(List.of(0)), drawn(sampling.withTemperature(0.25), logits));
  }

  /** The candidates that top-p sorts are a cut of the vocabulary; a plain sort must agree. */
  @Test
  void topPAgreesWithAPlainSort() {
    Random random = new Random(4);
    for (int round = 0; round < 200; round++) {
      int n = 1 + random.nextInt(60);
      double p = random.nextDouble();
      float[] logits = new float[n];
      for (int i = 0; i < n; i++) {
        logits[i] = (float) random.nextGaussian() * 3;
      }
      double total = 0;
      for (float logit : logits) {
        total += Math.exp(logit);
      }
      Integer[] order = new Integer[n];
      Arrays.setAll(order, i -> i);
      Arrays.sort(order, (a, b) -> Float.compare(logits[b], logits[a]));
      TreeSet<Integer> kept = new TreeSet<>();
      double mass = 0;
      for (int i = 0; i < n && mass < p; i++) {
        kept.add(order[i]);
        mass += Math.exp(logits[order[i]]) / total;
      }
      Sampler sampler = new Sampler(Sampling.seeded(round).withTopP(p), ids(n));
      for (int position = 0; position < 50; position++) {
        int id = sampler.next(logits, NONE, 0, position);
        assertTrue(kept.contains(id), "p " + p + ": drew " + id + ", kept " + kept);
      }
    }
  }

  /** Gumbel-max draws from the softmax: frequencies within five standard deviations. */
  @Test
  void drawsFollowTheDistribution() {
    double[] p = {0.5, 0.2, 0.2, 0.07, 0.03};
    Sampler sampler = new Sampler(Sampling.seeded(99), ids(5));
    int draws = 100_000;
    int[] count = new int[5];
    for (int position = 0; position < draws; position++) {
      count[sampler.next(logs(p), NONE, 0, position)]++;
    }
    for (int i = 0; i < p.length; i++) {
      double deviation = Math.sqrt(draws * p[i] * (1 - p[i]));
      assertEquals(draws * p[i], count[i], 5 * deviation, "token " + i);
    }
  }

  /** Noise is left out where it can't matter; with all of it the same token wins. */
  @ParameterizedTest
  @ValueSource(doubles = {0, 0.01, 0.5, 3, 30})
  void drawsTheLargestSumOfScoreAndNoise(double spread) {
    int n = 20_000;
    Random random = new Random(7);
    float[] logits = new float[n];
    for (int i = 0; i < n; i++) {
      logits[i] = (float) (spread * random.nextGaussian());
    }
    Sampler sampler = new Sampler(Sampling.seeded(3), ids(n));
    float max = 0; // of them
    for (float logit : logits) {
      max = Math.max(max, logit);
    }
    int[] words = new int[4];
    for (int position = 0; position < 100; position++) {
      int winner = -1;
      double highest = Double.NEGATIVE_INFINITY;
      for (int id = 0; id < n; id++) {
        Philox.block(3, id / 4, position, 1, 0, words);
        double u = (Integer.toUnsignedLong(words[id % 4]) + 0.5) / 0x1p32;
        double sum = logits[id] - max - Math.log(-Math.log(u));
        if (sum > highest) {
          highest = sum;
          winner = id;
        }
      }
      assertEquals(winner, sampler.next(logits, NONE, 1, position), "position " + position);
    }
  }

  /** The largest noise of each bin is the noise at one of its ends, and no less elsewhere. */
  @Test
  void noiseIsNeverMoreThanItsBinSays() {
    Random random = new Random(8);
    for (int i = 0; i < 1_000_000; i++) {
      int bits = ~(random.nextInt() >>> random.nextInt(33)); // any number of leading ones
      double most = Sampler.largestNoise(bits);
      double noise = Sampler.gumbel(bits);
      assertTrue(noise <= most, () -> "%08x: %s, at most %s".formatted(bits, noise, most));
      if (bits < 0) { // of bits that begin with a one: those that win
        assertTrue(noise > most - 0.1, () -> "%08x: %s, at most %s".formatted(bits, noise, most));
      }
    }
    assertEquals(Sampler.gumbel(-1), Sampler.largestNoise(-1));
    assertEquals(Sampler.gumbel(Integer.MAX_VALUE), Sampler.largestNoise(Integer.MAX_VALUE));
  }

  @Test
  void aDrawDependsOnSeedSampleAndPositionAlone() {
    float[] flat = new float[1000];
    Sampler one = new Sampler(Sampling.seeded(5), ids(1000));
    Sampler other = new Sampler(Sampling.seeded(5), ids(1000));
    int[] first = new int[20];
    int[] second = new int[20];
    for (int i = 0; i < 20; i++) {
      first[i] = one.next(flat, NONE, 2, i);
      second[19 - i] = other.next(flat, NONE, 2, 19 - i);
    }
    assertArrayEquals(first, second, "no state between draws");
    int[] sample3 = new int[20];
    int[] seed6 = new int[20];
    Sampler six = new Sampler(Sampling.seeded(6), ids(1000));
    for (int i = 0; i < 20; i++) {
      sample3[i] = one.next(flat, NONE, 3, i);
      seed6[i] = six.next(flat, NONE, 2, i);
    }
    assertNotEquals(Arrays.toString(first), Arrays.toString(sample3));
    assertNotEquals(Arrays.toString(first), Arrays.toString(seed6));
  }

  @Test
  void neverDrawsAPaddingRow() {
    BitSet allowed = seen(0, 2, 5);
    Sampler sampler = new Sampler(Sampling.seeded(1), allowed);
    float[] logits = {0, 50, 0, 50, 50, 0, 50, 50};
    for (int i = 0; i < 200; i++) {
      assertTrue(allowed.get(sampler.next(logits, NONE, 0, i)));
    }
    assertEquals(0, new Sampler(Sampling.greedy(), allowed).next(logits, NONE, 0, 0));
  }

  @ParameterizedTest
  @ValueSource(floats = {Float.NaN, Float.POSITIVE_INFINITY, Float.NEGATIVE_INFINITY})
  void nanNeverPasses(float bad) {
    for (Sampling sampling : List.of(Sampling.greedy(), Sampling.seeded(1))) {
      Sampler sampler = new Sampler(sampling, ids(3));
      assertThrows(
          NotFiniteException.class, () -> sampler.next(new float[] {0, bad, 1}, NONE, 0, 0));
    }
  }

  @Test
  void extremeLogitsAndTemperatures() {
    float[] logits = {-3e38f, 3e38f, 0};
    for (double t : new double[] {1e-5, 1, 1e5}) {
      Sampling sampling = Sampling.seeded(1).withTemperature(t).withTopP(0.9).withMinP(0.01);
      assertEquals(1, new Sampler(sampling, ids(3)).next(logits, NONE, 0, 0), "temperature " + t);
    }
  }

  @Test
  void parametersOutOfRangeAreRefused() {
    Sampling s = Sampling.greedy();
    for (double bad : new double[] {-1, Double.NaN, Double.POSITIVE_INFINITY}) {
      assertThrows(IllegalArgumentException.class, () -> s.withTemperature(bad));
      assertThrows(IllegalArgumentException.class, () -> s.withTopP(bad));
      assertThrows(IllegalArgumentException.class, () -> s.withMinP(bad));
      assertThrows(IllegalArgumentException.class, () -> s.withRepetitionPenalty(bad));
    }
    assertThrows(IllegalArgumentException.class, () -> s.withTopK(-1));
    assertThrows(IllegalArgumentException.class, () -> s.withRepetitionPenalty(0));
  }

  @Test
  void kthLargestAgreesWithSorting() {
    Random random = new Random(3);
    for (int round = 0; round < 500; round++) {
      float[] x = new float[1 + random.nextInt(40)];
      for (int i = 0; i < x.length; i++) {
        x[i] = random.nextInt(10) - 5; // many ties
      }
      float[] sorted = x.clone();
      Arrays.sort(sorted);
      int k = 1 + random.nextInt(x.length);
      assertEquals(sorted[x.length - k], Sampler.kthLargest(x.clone(), x.length, k));
    }
  }

  @Test
  void distributionKnowsLogprobsRanksAndTheTop() {
    TokenDistribution d = new TokenDistribution(logs(0.1, 0.4, 0.1, 0.4), ids(4));
    assertEquals(Math.log(0.4), d.logprob(3), 1e-6);
    assertEquals(0, d.rank(1));
    assertEquals(2, d.rank(2));
    assertEquals(
        List.of(1, 3, 0),
        d.top(3).stream().map(TokenDistribution.Entry::id).toList(),
        "ties by id");
    assertEquals(4, d.top(10).size());
    assertEquals(List.of(), d.top(0));
  }

  @Test
  void rowsThatPadTheVocabularyHaveNoPartInTheDistribution() {
    BitSet said = ids(6);
    said.clear(1);
    said.clear(4, 6);
    float[] logits = {1, 90, 3, 2, 80, 70};
    TokenDistribution d = new TokenDistribution(logits, said);
    double sum = Math.exp(1) + Math.exp(3) + Math.exp(2);
    assertEquals(3 - Math.log(sum), d.logprob(2), 1e-12);
    assertEquals(0, d.rank(2));
    assertEquals(2, d.rank(0));
    assertEquals(List.of(2, 3, 0), d.top(6).stream().map(TokenDistribution.Entry::id).toList());
  }
}
