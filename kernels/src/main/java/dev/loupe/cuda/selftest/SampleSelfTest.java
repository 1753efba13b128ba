package dev.loupe.cuda.selftest;

import static dev.loupe.cuda.selftest.SelfTestInputs.F32;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.kernels.SampleKernels;
import dev.loupe.cuda.kernels.SampleOptions;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.stream.IntStream;

/** Sampling, held to {@link PlainSampler}. */
final class SampleSelfTest {
  private static final int ROWS = 8;
  private static final int VOCABULARY = 1003; // the last four ids are three

  /** Row of which a logit is NaN. */
  private static final int NAN = ROWS - 1;

  private static final List<SampleOptions> OPTIONS =
      List.of(
          new SampleOptions(0, 0, 1, 0, 1.3f, 5),
          new SampleOptions(1.5f, 0, 1, 0, 1, 6),
          new SampleOptions(2, 90, .9, .02, 1.3f, 7),
          // so hot that each of the three or so that are kept is drawn
          new SampleOptions(1e4f, 3, 1, 0, 1, 8),
          new SampleOptions(1e4f, 1, 1, 0, 1, 11),
          new SampleOptions(1e4f, 1, 1, 0, 1, 12),
          new SampleOptions(1e4f, 1, 1, 0, 1, 13),
          new SampleOptions(1e4f, 0, .0031, 0, 1, 9),
          new SampleOptions(6, 0, 1, .8, 1, 1L << 40));

  private final SelfTestInputs c;
  private final float[] x; // [ROWS, VOCABULARY]
  private final BitSet allowed = new BitSet();
  private final BitSet seen = new BitSet();

  SampleSelfTest(SelfTestInputs c) {
    this.c = c;
    x = c.floats(F32, ROWS * VOCABULARY);
    for (int i = 0; i < x.length; i++) {
      x[i] *= 8;
      if (i / VOCABULARY == ROWS - 2) { // many are equal, the largest, too
        x[i] = Math.round(x[i]) / 2f;
      }
    }
    x[x.length - 1] = Float.NaN;
    IntStream.range(0, VOCABULARY).filter(id -> id % 7 != 0).forEach(allowed::set);
    IntStream.range(0, VOCABULARY).filter(id -> id % 5 == 0).forEach(seen::set);
  }

  void sample(Variant v, Element element) {
    for (int stride : new int[] {VOCABULARY, VOCABULARY + 5}) { // one by one, and 16 bytes a load
      float[] strided = new float[ROWS * stride];
      Arrays.fill(strided, Float.NaN);
      for (int r = 0; r < ROWS; r++) {
        System.arraycopy(x, r * VOCABULARY, strided, r * stride, VOCABULARY);
      }
      DeviceBuffer values = c.put(F32, strided);
      sample(v, new SampleKernels.Logits(values, ROWS, VOCABULARY, stride));
    }
  }

  private void sample(Variant v, SampleKernels.Logits logits) {
    // all scores in shared memory, and half of them
    int mostKept = logits.stride() == VOCABULARY ? VOCABULARY + 1 : VOCABULARY / 2;
    SampleKernels kernels = new SampleKernels(c.gpu(), 0, mostKept);
    String of = " in rows of " + logits.stride();
    switch (v.name()) {
      case "v1" -> {
        for (int first = 0; first < OPTIONS.size(); first++) {
          draws(kernels, logits, first, of);
        }
      }
      case "argmax" -> {
        argmax(kernels, logits, allowed, of);
        argmax(kernels, logits, new BitSet(), " of none" + of);
      }
      case "logprob" -> {
        int[] ids =
            IntStream.range(0, ROWS).map(r -> r == 1 ? -1 : VOCABULARY - 2 - 3 * r).toArray();
        DeviceBuffer y = c.empty(F32, ROWS);
        kernels.logprobs(logits, c.put(ids), y);
        double[] lse = logSums(1);
        c.compare(
            "log p" + of, y, r -> ids[r] < 0 ? Double.NaN : x[r * VOCABULARY + ids[r]] - lse[r]);
      }
      default -> {
        for (boolean log : new boolean[] {false, true}) {
          DeviceBuffer y = c.empty(F32, logits.values().elements());
          kernels.softmax(logits, y, 0.7f, log);
          double[] lse = logSums(0.7f);
          c.compare(
              (log ? "log p" : "p") + of,
              y,
              i -> {
                int r = i / logits.stride();
                int id = i % logits.stride();
                double logP = id < VOCABULARY ? x[r * VOCABULARY + id] / 0.7f - lse[r] : Double.NaN;
                return log ? logP : Math.exp(logP);
              });
        }
      }
    }
  }

  private void argmax(SampleKernels kernels, SampleKernels.Logits logits, BitSet among, String of) {
    int[] poison = new int[ROWS];
    Arrays.fill(poison, VOCABULARY); // not -1, which can be right
    DeviceBuffer ids = c.put(poison);
    DeviceBuffer errors = c.empty(Element.I32, ROWS);
    kernels.argmax(logits, c.put(words(among, 1)), ids, errors);
    SampleOptions greedy = new SampleOptions(0, 0, 1, 0, 1, 0);
    c.compare("id" + of, ids, row -> row == NAN ? -1 : choose(row, among, new BitSet(), greedy));
    c.compare("error" + of, errors, row -> row == NAN ? 1 : among.isEmpty() ? 2 : 0);
  }

  /**
   * @param first options of row 0; each later row has the next ones
   */
  private void draws(SampleKernels kernels, SampleKernels.Logits logits, int first, String of) {
    SampleOptions[] options = new SampleOptions[ROWS];
    Arrays.setAll(options, r -> OPTIONS.get((first + r) % OPTIONS.size()));
    SampleKernels.Chosen chosen =
        new SampleKernels.Chosen(
            c.empty(Element.I32, ROWS),
            c.empty(F32, ROWS),
            c.empty(Element.I32, ROWS),
            c.empty(Element.I32, ROWS));
    DeviceBuffer seenWords = c.put(words(seen, ROWS));
    kernels.sample(
        logits,
        c.put(words(allowed, 1)),
        seenWords,
        c.put(IntStream.range(0, ROWS).toArray()), // samples
        c.put(IntStream.range(10, 10 + ROWS).toArray()), // positions
        c.put(Arrays.stream(options).flatMapToInt(o -> Arrays.stream(o.words())).toArray()),
        chosen);
    int[] ids = new int[ROWS];
    int[] ranks = new int[ROWS];
    int[] seenNow = words(seen, ROWS);
    for (int r = 0; r < NAN; r++) {
      ids[r] = choose(r, allowed, seen, options[r]);
      for (int id = 0; id < VOCABULARY; id++) {
        ranks[r] += x[r * VOCABULARY + id] > x[r * VOCABULARY + ids[r]] ? 1 : 0;
      }
      seenNow[r * Math.ceilDiv(VOCABULARY, 32) + ids[r] / 32] |= 1 << ids[r] % 32;
    }
    ids[NAN] = -1;
    ranks[NAN] = -1;
    double[] lse = logSums(1);
    c.compare("id" + of, chosen.ids(), ids);
    c.compare(
        "logprob" + of,
        chosen.logprobs(),
        r -> r == NAN ? Double.NaN : x[r * VOCABULARY + ids[r]] - lse[r]);
    c.compare("rank" + of, chosen.ranks(), ranks);
    c.compare("error" + of, chosen.errors(), r -> r == NAN ? 1 : 0);
    c.compare("seen" + of, seenWords, seenNow);
  }

  private int choose(int row, BitSet among, BitSet before, SampleOptions options) {
    float[] logits = Arrays.copyOfRange(x, row * VOCABULARY, (row + 1) * VOCABULARY);
    return PlainSampler.choose(logits, among, before, options, row, 10 + row);
  }

  private double[] logSums(float temperature) {
    double[] sums = new double[ROWS];
    for (int i = 0; i < x.length; i++) {
      sums[i / VOCABULARY] += Math.exp(x[i] / temperature);
    }
    return Arrays.stream(sums).map(Math::log).toArray();
  }

  /** {@code copies} of a bit set over all ids. */
  private static int[] words(BitSet ids, int copies) {
    int n = Math.ceilDiv(VOCABULARY, 32);
    int[] words = new int[copies * n];
    ids.stream()
        .forEach(
            id -> IntStream.range(0, copies).forEach(c -> words[c * n + id / 32] |= 1 << id % 32));
    return words;
  }
}
