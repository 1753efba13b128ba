package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.selftest.PlainSampler;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

@OnDevice
class SampleKernelsTest extends SampleFixture {
  private static final long SEED = 0x1234_5678_9abc_def0L;
  private static final SampleOptions GREEDY = new SampleOptions(0, 0, 1, 0, 1, SEED);
  private static final SampleOptions PLAIN = new SampleOptions(1, 0, 1, 0, 1, SEED);

  /** Rows of logits and what is known of each; every row draws at a position of its own. */
  private static final class Rows {
    final float[][] logits;
    final @Nullable BitSet allowed;
    final BitSet[] seen;

    Rows(float[][] logits, @Nullable BitSet allowed, BitSet[] seen) {
      this.logits = logits;
      this.allowed = allowed;
      this.seen = seen;
    }

    static Rows of(float[][] logits) {
      BitSet[] seen = new BitSet[logits.length];
      Arrays.setAll(seen, r -> new BitSet());
      return new Rows(logits, null, seen);
    }

    int vocabulary() {
      return logits[0].length;
    }

    int sample(int row) {
      return row % 3;
    }

    int position(int row) {
      return 17 + row;
    }

    BitSet allowedOrAll() {
      if (allowed != null) {
        return allowed;
      }
      BitSet all = new BitSet();
      all.set(0, vocabulary());
      return all;
    }
  }

  /** What the kernel wrote; {@code seen} holds the rows' bit sets one after the other. */
  private static final class Outcome {
    final int[] ids;
    final float[] logprobs;
    final int[] ranks;
    final int[] errors;
    final int[] seen;

    Outcome(int rows, int words) {
      ids = new int[rows];
      logprobs = new float[rows];
      ranks = new int[rows];
      errors = new int[rows];
      seen = new int[rows * words];
    }
  }

  @Test
  void theTestsPhiloxGivesThePublishedNumbers() {
    // kat_vectors of Random123
    assertArrayEquals(
        new int[] {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        PlainSampler.philox(0, new int[4]));
    assertArrayEquals(
        new int[] {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        PlainSampler.philox(-1, new int[] {-1, -1, -1, -1}));
  }

  static List<SampleOptions> options() {
    return List.of(
        GREEDY,
        PLAIN,
        new SampleOptions(0.7f, 0, 1, 0, 1, -1),
        new SampleOptions(1e-4f, 0, 1, 0, 1, 1),
        new SampleOptions(100, 0, 1, 0, 1, 2),
        new SampleOptions(1, 1, 1, 0, 1, 3),
        new SampleOptions(1, 2, 1, 0, 1, 4),
        new SampleOptions(0.9f, 40, 1, 0, 1, 5),
        new SampleOptions(1, 0, 0.9, 0, 1, 6),
        new SampleOptions(1.3f, 0, 0.5, 0, 1, 7),
        new SampleOptions(1, 0, 1e-9, 0, 1, 8),
        new SampleOptions(1, 0, 0.999999, 0, 1, 9),
        new SampleOptions(1, 0, 0, 0, 1, 10),
        new SampleOptions(1, 0, 1, 0.1, 1, 11),
        new SampleOptions(1, 0, 1, 1, 1, 12),
        new SampleOptions(1, 0, 1, 0, 1.3f, 13),
        new SampleOptions(0, 0, 1, 0, 2, 14),
        new SampleOptions(2, 0, 1, 0, 0.5f, 15),
        new SampleOptions(0.8f, 20, 0.95, 0.02, 1.1f, SEED));
  }

  @ParameterizedTest
  @MethodSource("options")
  void drawsWhatThePlainSamplerDraws(SampleOptions options) {
    Random random = new Random(options.seed());
    for (int vocabulary : new int[] {1, 7, 33, 100}) {
      float[][] logits = new float[100][vocabulary];
      for (int r = 0; r < logits.length; r++) {
        fill(logits[r], r % 5, random);
      }
      assertDraws(options, Rows.of(logits));
      assertDraws(options, restricted(logits, random));
    }
    float[][] logits = new float[10][1000];
    for (int r = 0; r < logits.length; r++) {
      fill(logits[r], r % 5, random);
    }
    assertDraws(options, restricted(logits, random));
  }

  /** Some ids are not allowed, some have been seen. */
  private static Rows restricted(float[][] logits, Random random) {
    int vocabulary = logits[0].length;
    BitSet allowed = new BitSet();
    allowed.set(random.nextInt(vocabulary));
    BitSet[] seen = new BitSet[logits.length];
    for (int id = 0; id < vocabulary; id++) {
      allowed.set(id, allowed.get(id) || random.nextInt(5) > 0);
    }
    for (int r = 0; r < logits.length; r++) {
      seen[r] = new BitSet();
      for (int id = 0; id < vocabulary; id++) {
        seen[r].set(id, random.nextInt(3) == 0);
      }
    }
    return new Rows(logits, allowed, seen);
  }

  private static Outcome assertDraws(SampleOptions options, Rows rows) {
    return assertDraws(Collections.nCopies(rows.logits.length, options), rows);
  }

  private static Outcome assertDraws(List<SampleOptions> ofRows, Rows rows) {
    Outcome outcome = sample(ofRows, rows, 64, Integer.MAX_VALUE);
    for (int r = 0; r < rows.logits.length; r++) {
      SampleOptions options = ofRows.get(r);
      float[] logits = rows.logits[r];
      int expected =
          PlainSampler.choose(
              logits, rows.allowedOrAll(), rows.seen[r], options, rows.sample(r), rows.position(r));
      String label = "%s, V = %d, row %d".formatted(options, logits.length, r);
      assertEquals(0, outcome.errors[r], label);
      assertEquals(expected, outcome.ids[r], label);
      assertDescribed(label, logits, outcome, r);
      BitSet seen = (BitSet) rows.seen[r].clone();
      seen.set(expected);
      int words = Math.ceilDiv(logits.length, 32);
      assertArrayEquals(
          words(seen, words),
          Arrays.copyOfRange(outcome.seen, r * words, (r + 1) * words),
          "seen, " + label);
    }
    return outcome;
  }

  private static void assertDescribed(String label, float[] logits, Outcome outcome, int r) {
    int id = outcome.ids[r];
    double[] logprobs = logSoftmax(logits, 1);
    // f32: the difference from the largest, the sum of exponentials, its logarithm, the result
    double tolerance = 0x1p-23 * (Math.abs(logprobs[id]) + 24);
    assertEquals(logprobs[id], outcome.logprobs[r], tolerance, "logprob, " + label);
    int rank = 0;
    for (float logit : logits) {
      rank += logit > logits[id] ? 1 : 0;
    }
    assertEquals(rank, outcome.ranks[r], "rank, " + label);
  }

  @Test
  void eachRowIsDrawnByItsOwnOptions() {
    Random random = new Random(8);
    float[][] logits = new float[options().size()][50];
    for (float[] row : logits) {
      fill(row, 0, random);
    }
    assertDraws(options(), restricted(logits, random));
  }

  @Test
  void drawsFromTheWholeVocabulary() {
    float[][] logits = new float[2][50257];
    fill(logits[0], 0, new Random(5));
    fill(logits[1], 1, new Random(6));
    for (SampleOptions options :
        List.of(
            PLAIN,
            new SampleOptions(0.8f, 50, 1, 0, 1, 2),
            new SampleOptions(1, 0, 0.9, 0, 1.2f, 3))) {
      Rows rows = restricted(logits, new Random(7));
      Outcome narrow = assertDraws(options, rows);
      assertArrayEquals(narrow.ids, sample(options, rows, 1024).ids);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {64, 128, 256, 512, 1024})
  void theWidthOfTheBlockChangesNothing(int threads) {
    Rows rows = restricted(kinds(1000), new Random(1));
    for (SampleOptions options : List.of(PLAIN, options().get(18), options().get(8))) {
      Outcome one = sample(options, rows, 64);
      Outcome other = sample(options, rows, threads);
      assertArrayEquals(one.ids, other.ids);
      assertArrayEquals(one.ranks, other.ranks);
      assertArrayEquals(one.seen, other.seen);
    }
  }

  /** Scores in shared memory, and scores that are made anew. */
  @ParameterizedTest
  @ValueSource(ints = {0, 3, 500, 997})
  void whatIsKeptChangesNothing(int mostKept) {
    Rows rows = restricted(kinds(1000), new Random(1));
    for (SampleOptions options : List.of(GREEDY, PLAIN, options().get(18), options().get(8))) {
      Outcome all = sample(options, rows, 64);
      Outcome some = sample(options, rows, 64, mostKept);
      assertArrayEquals(all.ids, some.ids);
      assertArrayEquals(all.logprobs, some.logprobs);
      assertArrayEquals(all.ranks, some.ranks);
      assertArrayEquals(all.seen, some.seen);
    }
  }

  @Test
  void theOrderOfThreadsChangesNothing() {
    Rows rows = restricted(kinds(1000), new Random(2));
    try {
      for (Runnable schedule : Emulator.otherSchedules()) {
        for (SampleOptions options : List.of(GREEDY, PLAIN, options().get(18))) {
          Emulator.forward();
          Outcome forward = sample(options, rows, 128);
          schedule.run();
          Outcome other = sample(options, rows, 128);
          assertArrayEquals(forward.ids, other.ids);
          assertArrayEquals(forward.logprobs, other.logprobs);
          assertArrayEquals(forward.ranks, other.ranks);
          assertArrayEquals(forward.seen, other.seen);
          assertDraws(options, rows);
        }
        LogitKernelsTest logits = new LogitKernelsTest();
        logits.softmaxAndItsLogFollowTheDefinition(1000);
        logits.logprobsFollowTheDefinition(1000);
      }
    } finally {
      Emulator.forward();
    }
  }

  @Test
  void scoresFarApartAndCloseTogetherAreStillToldApart() {
    // 40 nats apart, where fixed point ends; a few 2^-149 apart, where it is too coarse; equal
    float[] row = new float[64];
    for (int i = 0; i < row.length; i++) {
      row[i] = i % 4 == 0 ? -i : i % 4 == 1 ? -33 - i * 0x1p-17f : i % 4 == 2 ? -100 * i : 0;
      row[i] += i == 63 ? 0x1p-30f : 0;
    }
    float[] tiny = new float[64];
    for (int i = 0; i < tiny.length; i++) {
      tiny[i] = -Float.MIN_VALUE * (i % 7);
    }
    for (int k = 1; k < 64; k++) {
      float[][] logits = {row, tiny, row, tiny, row, tiny};
      assertDraws(new SampleOptions(1, k, 1, 0, 1, k), Rows.of(logits));
      assertDraws(new SampleOptions(50, 0, k / 64.0, 0, 1, k), Rows.of(logits));
    }
  }

  @Test
  void aShareThatIsReachedExactlyKeepsNoMore() {
    // weights of 1: p = 1/2 of eight tokens is reached with the fourth, and just more with the
    // fifth
    float[][] logits = new float[200][8];
    for (double p : new double[] {0.5, Math.nextUp(0.5), 0.125, 0.875, Math.nextDown(1.0)}) {
      Outcome outcome = assertDraws(new SampleOptions(1, 0, p, 0, 1, 1), Rows.of(logits));
      int last = (int) Math.ceil(p * 8) - 1;
      assertEquals(last, Arrays.stream(outcome.ids).max().orElseThrow(), "p = " + p);
    }
  }

  @Test
  void aNonFiniteLogitIsReportedEvenOfAnIdThatMayNotBeChosen() {
    for (int vocabulary : new int[] {1, 7, 257, 1000}) {
      for (float bad : new float[] {Float.NaN, Float.POSITIVE_INFINITY, Float.NEGATIVE_INFINITY}) {
        float[][] logits = new float[3][vocabulary];
        logits[1][vocabulary - 1] = bad;
        BitSet allowed = new BitSet();
        allowed.set(0, Math.max(1, vocabulary - 1));
        BitSet[] seen = {new BitSet(), new BitSet(), new BitSet()};
        for (SampleOptions options : List.of(GREEDY, PLAIN)) {
          Outcome outcome = sample(options, new Rows(logits, allowed, seen), 64);
          assertArrayEquals(new int[] {0, SampleKernels.NOT_FINITE, 0}, outcome.errors);
          assertEquals(-1, outcome.ids[1]);
          assertEquals(-1, outcome.ranks[1]);
          assertEquals(Float.NaN, outcome.logprobs[1]);
          int words = Math.ceilDiv(vocabulary, 32);
          assertArrayEquals(
              new int[words], Arrays.copyOfRange(outcome.seen, words, 2 * words), "seen");
        }
      }
    }
  }

  @Test
  void noAllowedIdIsReported() {
    BitSet[] seen = {new BitSet()};
    BitSet beyond = new BitSet();
    beyond.set(40, 64); // bits that the last word has, but the vocabulary has not
    for (BitSet allowed : List.of(new BitSet(), beyond)) {
      for (SampleOptions options : List.of(GREEDY, PLAIN)) {
        Outcome outcome = sample(options, new Rows(new float[1][40], allowed, seen), 64);
        assertArrayEquals(new int[] {SampleKernels.NO_ID}, outcome.errors);
        assertArrayEquals(new int[] {-1}, outcome.ids);
      }
    }
  }

  private static Outcome sample(SampleOptions options, Rows rows, int threads) {
    return sample(options, rows, threads, Integer.MAX_VALUE);
  }

  private static Outcome sample(SampleOptions options, Rows rows, int threads, int mostKept) {
    return sample(Collections.nCopies(rows.logits.length, options), rows, threads, mostKept);
  }

  private static Outcome sample(List<SampleOptions> options, Rows rows, int threads, int mostKept) {
    int n = rows.logits.length;
    int vocabulary = rows.vocabulary();
    int words = Math.ceilDiv(vocabulary, 32);
    Outcome outcome = new Outcome(n, words);
    try (DeviceBuffer logits = upload(rows.logits, vocabulary + 3);
        DeviceBuffer allowed = gpu.allocate(Element.I32, words);
        DeviceBuffer seen = gpu.allocate(Element.I32, (long) n * words);
        DeviceBuffer samples = gpu.allocate(Element.I32, n);
        DeviceBuffer positions = gpu.allocate(Element.I32, n);
        DeviceBuffer how = gpu.allocate(Element.I32, (long) n * SampleOptions.INTS);
        DeviceBuffer ids = gpu.allocate(Element.I32, n);
        DeviceBuffer logprobs = gpu.allocate(Element.F32, n);
        DeviceBuffer ranks = gpu.allocate(Element.I32, n);
        DeviceBuffer errors = gpu.allocate(Element.I32, n)) {
      int[] all = new int[n];
      Arrays.setAll(all, rows::sample);
      samples.upload(all);
      Arrays.setAll(all, rows::position);
      positions.upload(all);
      how.upload(options.stream().flatMapToInt(o -> Arrays.stream(o.words())).toArray());
      if (rows.allowed != null) {
        allowed.upload(words(rows.allowed, words));
      }
      int[] bits = new int[n * words];
      for (int r = 0; r < n; r++) {
        System.arraycopy(words(rows.seen[r], words), 0, bits, r * words, words);
      }
      seen.upload(bits);
      for (DeviceBuffer result : List.of(ids, logprobs, ranks, errors)) {
        result.fill((byte) 0x55);
      }
      new SampleKernels(gpu, threads, mostKept)
          .sample(
              new SampleKernels.Logits(logits, n, vocabulary, vocabulary + 3),
              rows.allowed == null ? null : allowed,
              seen,
              samples,
              positions,
              how,
              new SampleKernels.Chosen(ids, logprobs, ranks, errors));
      ids.download(outcome.ids);
      logprobs.download(outcome.logprobs);
      ranks.download(outcome.ranks);
      errors.download(outcome.errors);
      seen.download(outcome.seen);
    }
    return outcome;
  }
}
