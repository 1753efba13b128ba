package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.selftest.PlainSampler;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.Random;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

@OnDevice
class SampleKernelsTest {
  private static final long SEED = 0x1234_5678_9abc_def0L;
  private static final SampleOptions GREEDY = new SampleOptions(0, 0, 1, 0, 1, SEED);
  private static final SampleOptions PLAIN = new SampleOptions(1, 0, 1, 0, 1, SEED);

  private static Gpu gpu;
  private static SampleKernels kernels;

  @BeforeAll
  static void open() {
    gpu = Emulator.open();
    kernels = new SampleKernels(gpu);
  }

  @AfterAll
  static void close() {
    gpu.close();
  }

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

  /** Five kinds of rows, some made to tie. */
  private static void fill(float[] row, int kind, Random random) {
    for (int i = 0; i < row.length; i++) {
      double x = random.nextGaussian();
      row[i] =
          switch (kind) {
            case 0 -> (float) (3 * x);
            case 1 -> Math.round(2 * x) / 2f; // many equal ones
            case 2 -> 1.5f; // nothing but equal ones
            case 3 -> random.nextBoolean() ? 80 : -80;
            default -> Float.intBitsToFloat(Float.floatToIntBits(5f) + random.nextInt(4));
          };
    }
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
    Outcome outcome = sample(options, rows, 64);
    for (int r = 0; r < rows.logits.length; r++) {
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
        softmaxAndItsLogFollowTheDefinition(1000);
        logprobsFollowTheDefinition(1000);
      }
    } finally {
      Emulator.forward();
    }
  }

  private static float[][] kinds(int vocabulary) {
    float[][] logits = new float[5][vocabulary];
    for (int kind = 0; kind < 5; kind++) {
      fill(logits[kind], kind, new Random(kind));
    }
    return logits;
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
    int n = rows.logits.length;
    int vocabulary = rows.vocabulary();
    int words = Math.ceilDiv(vocabulary, 32);
    int stride = vocabulary + 3;
    Outcome outcome = new Outcome(n, words);
    try (DeviceBuffer logits = upload(rows.logits, stride);
        DeviceBuffer allowed = gpu.allocate(Element.I32, words);
        DeviceBuffer seen = gpu.allocate(Element.I32, (long) n * words);
        DeviceBuffer samples = gpu.allocate(Element.I32, n);
        DeviceBuffer positions = gpu.allocate(Element.I32, n);
        DeviceBuffer how = gpu.allocate(Element.I32, SampleOptions.INTS);
        DeviceBuffer ids = gpu.allocate(Element.I32, n);
        DeviceBuffer logprobs = gpu.allocate(Element.F32, n);
        DeviceBuffer ranks = gpu.allocate(Element.I32, n);
        DeviceBuffer errors = gpu.allocate(Element.I32, n)) {
      int[] all = new int[n];
      Arrays.setAll(all, rows::sample);
      samples.upload(all);
      Arrays.setAll(all, rows::position);
      positions.upload(all);
      how.upload(options.words());
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
      new SampleKernels(gpu, threads)
          .sample(
              new SampleKernels.Logits(logits, n, vocabulary, stride),
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

  /** Rows apart by {@code stride}, NaN between them and nothing after the last. */
  private static DeviceBuffer upload(float[][] rows, int stride) {
    float[] flat = new float[(rows.length - 1) * stride + rows[0].length];
    Arrays.fill(flat, Float.NaN);
    for (int r = 0; r < rows.length; r++) {
      System.arraycopy(rows[r], 0, flat, r * stride, rows[r].length);
    }
    DeviceBuffer buffer = gpu.allocate(Element.F32, flat.length);
    buffer.upload(flat);
    return buffer;
  }

  private static int[] words(BitSet bits, int n) {
    int[] words = new int[n];
    for (int id = bits.nextSetBit(0); id >= 0 && id < 32 * n; id = bits.nextSetBit(id + 1)) {
      words[id / 32] |= 1 << id % 32;
    }
    return words;
  }

  @Test
  void argmaxTakesTheLowestOfTheLargest() {
    for (int vocabulary : new int[] {1, 7, 1000, 50257}) {
      float[][] logits = kinds(vocabulary);
      BitSet allowed = new BitSet();
      allowed.set(vocabulary / 3, vocabulary);
      int words = Math.ceilDiv(vocabulary, 32);
      try (DeviceBuffer values = upload(logits, vocabulary);
          DeviceBuffer set = gpu.allocate(Element.I32, words);
          DeviceBuffer ids = gpu.allocate(Element.I32, 5);
          DeviceBuffer errors = gpu.allocate(Element.I32, 5)) {
        set.upload(words(allowed, words));
        SampleKernels.Logits rows = new SampleKernels.Logits(values, 5, vocabulary);
        int[] got = new int[5];
        kernels.argmax(rows, null, ids, errors);
        ids.download(got);
        assertArrayEquals(best(logits, 0), got);
        kernels.argmax(rows, set, ids, errors);
        ids.download(got);
        assertArrayEquals(best(logits, vocabulary / 3), got);
        errors.download(got);
        assertArrayEquals(new int[5], got);
      }
    }
  }

  private static int[] best(float[][] logits, int from) {
    int[] best = new int[logits.length];
    for (int r = 0; r < best.length; r++) {
      best[r] = from;
      for (int id = from; id < logits[r].length; id++) {
        best[r] = logits[r][id] > logits[r][best[r]] ? id : best[r];
      }
    }
    return best;
  }

  @Test
  void argmaxReportsRowsWithoutAnAnswer() {
    float[][] logits = new float[3][9];
    logits[1][8] = Float.NaN;
    try (DeviceBuffer values = upload(logits, 9);
        DeviceBuffer none = gpu.allocate(Element.I32, 1);
        DeviceBuffer ids = gpu.allocate(Element.I32, 3);
        DeviceBuffer errors = gpu.allocate(Element.I32, 3)) {
      none.upload(new int[1]);
      int[] got = new int[3];
      kernels.argmax(new SampleKernels.Logits(values, 3, 9), none, ids, errors);
      errors.download(got);
      assertArrayEquals(
          new int[] {SampleKernels.NO_ID, SampleKernels.NOT_FINITE, SampleKernels.NO_ID}, got);
      ids.download(got);
      assertArrayEquals(new int[] {-1, -1, -1}, got);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 7, 1000, 50257})
  void softmaxAndItsLogFollowTheDefinition(int vocabulary) {
    float[][] logits = kinds(vocabulary);
    int stride = vocabulary + 1;
    for (float temperature : new float[] {1, 0.5f, 3}) {
      for (boolean log : new boolean[] {true, false}) {
        float[] got = new float[4 * stride + vocabulary];
        try (DeviceBuffer values = upload(logits, stride);
            DeviceBuffer y = gpu.allocate(Element.F32, got.length)) {
          y.fill((byte) 0xff);
          SampleKernels.Logits rows = new SampleKernels.Logits(values, 5, vocabulary, stride);
          kernels.softmax(rows, y, temperature, log);
          y.download(got);
          kernels.softmax(rows, values, temperature, log);
          float[] inPlace = new float[got.length];
          values.download(inPlace);
          assertArrayEquals(got, inPlace, "in place");
        }
        for (int r = 0; r < 5; r++) {
          assertSoftmax(logits[r], temperature, log, got, r * stride);
        }
      }
    }
  }

  private static void assertSoftmax(
      float[] logits, float temperature, boolean log, float[] got, int start) {
    double[] logprobs = logSoftmax(logits, temperature);
    double sum = 0;
    for (int id = 0; id < logits.length; id++) {
      // A score errs by 2^-23 of its size, a probability by that times itself. The sum errs by its
      // additions in a row: as many as a thread has ids, then 5 in the warp and 32 over warps.
      double relative = 0x1p-23 * (Math.abs(logprobs[id]) + 24 + Math.ceilDiv(logits.length, 1024));
      double expected = log ? logprobs[id] : Math.exp(logprobs[id]);
      double tolerance = log ? relative : expected * relative + 0x1p-126;
      assertEquals(expected, got[start + id], tolerance, "id " + id);
      sum += log ? Math.exp(got[start + id]) : got[start + id];
    }
    assertEquals(1, sum, 1e-5);
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 7, 1000, 50257})
  void logprobsFollowTheDefinition(int vocabulary) {
    float[][] logits = kinds(vocabulary);
    for (int stride : new int[] {vocabulary, Math.ceilDiv(vocabulary + 1, 4) * 4}) {
      try (DeviceBuffer values = upload(logits, stride);
          DeviceBuffer of = gpu.allocate(Element.I32, 5);
          DeviceBuffer y = gpu.allocate(Element.F32, 6)) {
        for (int first : new int[] {0, vocabulary / 2}) {
          int[] ids = {first, vocabulary - 1, -1, 0, vocabulary - 1 - first};
          of.upload(ids);
          y.fill((byte) 0xff);
          kernels.logprobs(new SampleKernels.Logits(values, 5, vocabulary, stride), of, y);
          float[] got = new float[6];
          y.download(got);
          for (int r = 0; r < 5; r++) {
            double expected = ids[r] < 0 ? Double.NaN : logSoftmax(logits[r], 1)[ids[r]];
            double tolerance =
                0x1p-23 * (Math.abs(expected) + 24 + Math.ceilDiv(vocabulary, 1024)); // as above
            assertEquals(expected, got[r], ids[r] < 0 ? 0 : tolerance, "row " + r);
          }
          assertEquals(-1, Float.floatToRawIntBits(got[5]), "no more than the rows");
        }
      }
    }
  }

  @Test
  void logprobsOfWhatIsNotFiniteAreNan() {
    float[][] logits = new float[5][100];
    logits[1][99] = Float.NaN;
    logits[2][40] = Float.POSITIVE_INFINITY;
    logits[4][50] = Float.NEGATIVE_INFINITY;
    try (DeviceBuffer values = upload(logits, 100);
        DeviceBuffer of = gpu.allocate(Element.I32, 5);
        DeviceBuffer y = gpu.allocate(Element.F32, 5)) {
      of.upload(new int[] {0, 1, 40, 3, 50});
      kernels.logprobs(new SampleKernels.Logits(values, 5, 100), of, y);
      float[] got = new float[5];
      y.download(got);
      float even = (float) -Math.log(100);
      assertArrayEquals(
          new float[] {even, Float.NaN, Float.NaN, even, Float.NEGATIVE_INFINITY}, got, 1e-5f);
    }
  }

  private static double[] logSoftmax(float[] logits, double temperature) {
    double max = Double.NEGATIVE_INFINITY;
    for (float logit : logits) {
      max = Math.max(max, logit);
    }
    double sum = 0;
    for (float logit : logits) {
      sum += Math.exp((logit - max) / temperature);
    }
    double[] logprobs = new double[logits.length];
    for (int id = 0; id < logits.length; id++) {
      logprobs[id] = (logits[id] - max) / temperature - Math.log(sum);
    }
    return logprobs;
  }

  @Test
  void refusesWhatDoesNotFit() {
    try (DeviceBuffer logits = gpu.allocate(Element.F32, 100);
        DeviceBuffer four = gpu.allocate(Element.I32, 4);
        DeviceBuffer options = gpu.allocate(Element.I32, SampleOptions.INTS);
        DeviceBuffer logprobs = gpu.allocate(Element.F32, 4)) {
      SampleKernels.Chosen chosen = new SampleKernels.Chosen(four, logprobs, four, four);
      assertRefused(
          "sample: logits has 100 elements, needs 125",
          () -> sample(logits, 5, 25, 25, four, options, chosen));
      assertRefused(
          "sample: samples has 4 elements, needs 5",
          () -> sample(logits, 5, 20, 20, four, options, chosen));
      assertRefused(
          "sample: stride is 24, not between 25 and 2147483647",
          () -> sample(logits, 4, 25, 24, four, options, chosen));
      assertRefused(
          "sample: vocabulary is 4194305, not between 1 and 4194304",
          () -> sample(logits, 1, 4194305, 4194305, four, options, chosen));
      assertRefused(
          "sample: seen has 4 elements, needs 6",
          () -> sample(logits, 3, 33, 33, four, options, chosen));
      assertRefused(
          "sample: options has 4 elements, needs 8",
          () -> sample(logits, 1, 20, 20, four, four, chosen));
      assertRefused(
          "softmax: temperature is 0.0, not more than 0",
          () -> kernels.softmax(new SampleKernels.Logits(logits, 1, 100), logits, 0, true));
      SampleKernels.Logits twenty = new SampleKernels.Logits(logits, 5, 20);
      assertRefused(
          "logprobs: ids has 4 elements, needs 5", () -> kernels.logprobs(twenty, four, logprobs));
      assertRefused(
          "argmax: ids holds F32, not I32",
          () -> kernels.argmax(new SampleKernels.Logits(logits, 1, 100), null, logprobs, four));
    }
  }

  private static void sample(
      DeviceBuffer logits,
      int rows,
      int vocabulary,
      int stride,
      DeviceBuffer ints,
      DeviceBuffer options,
      SampleKernels.Chosen chosen) {
    kernels.sample(
        new SampleKernels.Logits(logits, rows, vocabulary, stride),
        null,
        ints,
        ints,
        ints,
        options,
        chosen);
  }

  private static void assertRefused(String message, Runnable call) {
    assertEquals(message, assertThrows(IllegalArgumentException.class, call::run).getMessage());
  }
}
