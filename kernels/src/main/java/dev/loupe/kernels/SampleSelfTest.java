package dev.loupe.kernels;

import static dev.loupe.kernels.Comparison.F32;

import java.util.Arrays;
import java.util.BitSet;
import java.util.stream.IntStream;

/** Sampling, held to {@link PlainSampler}. */
final class SampleSelfTest {
  private final Comparison c;

  SampleSelfTest(Comparison c) {
    this.c = c;
  }

  void sample(Variant v, Element element) {
    int rows = 3;
    int vocabulary = 1000;
    float[] x = c.floats(F32, rows * vocabulary);
    for (int i = 0; i < x.length; i++) {
      x[i] *= 8;
    }
    BitSet allowed = new BitSet();
    IntStream.range(0, vocabulary).filter(id -> id % 7 != 0).forEach(allowed::set);
    BitSet seen = new BitSet();
    IntStream.range(0, vocabulary).filter(id -> id % 5 == 0).forEach(seen::set);
    SampleKernels kernels = new SampleKernels(c.gpu());
    DeviceBuffer values = c.put(F32, x);
    SampleKernels.Logits logits = new SampleKernels.Logits(values, rows, vocabulary);
    DeviceBuffer ids = c.empty(Element.I32, rows);
    DeviceBuffer errors = c.empty(Element.I32, rows);
    switch (v.name()) {
      case "v1" -> {
        draws(kernels, logits, x, allowed, seen, new SamplingOptions(0, 0, 1, 0, 1.3f, 5));
        draws(kernels, logits, x, allowed, seen, new SamplingOptions(1.5f, 0, 1, 0, 1, 6));
        draws(kernels, logits, x, allowed, seen, new SamplingOptions(2, 90, .9, .02, 1.3f, 7));
      }
      case "argmax" -> {
        kernels.argmax(logits, c.put(words(allowed, 1)), ids, errors);
        SamplingOptions greedy = new SamplingOptions(0, 0, 1, 0, 1, 0);
        c.compare("id", ids, row -> choose(x, row, vocabulary, allowed, new BitSet(), greedy));
        c.compare("error", errors, row -> 0);
      }
      case "logprob" -> {
        int[] of = {3, -1, vocabulary - 1};
        DeviceBuffer y = c.empty(F32, rows);
        kernels.logprobs(logits, c.put(of), y);
        double[] lse = logSums(x, rows, 1);
        c.compare("log p", y, r -> of[r] < 0 ? Double.NaN : x[r * vocabulary + of[r]] - lse[r]);
      }
      default -> {
        for (boolean log : new boolean[] {false, true}) {
          DeviceBuffer y = c.empty(F32, x.length);
          kernels.softmax(logits, y, 0.7f, log);
          double[] lse = logSums(x, rows, 0.7f);
          c.compare(
              log ? "log p" : "p",
              y,
              i -> {
                double logP = x[i] / 0.7f - lse[i / vocabulary];
                return log ? logP : Math.exp(logP);
              });
        }
      }
    }
  }

  private void draws(
      SampleKernels kernels,
      SampleKernels.Logits logits,
      float[] x,
      BitSet allowed,
      BitSet seen,
      SamplingOptions options) {
    int rows = logits.rows();
    int n = logits.vocabulary();
    SampleKernels.Chosen chosen =
        new SampleKernels.Chosen(
            c.empty(Element.I32, rows),
            c.empty(F32, rows),
            c.empty(Element.I32, rows),
            c.empty(Element.I32, rows));
    DeviceBuffer seenWords = c.put(words(seen, rows));
    kernels.sample(
        logits,
        c.put(words(allowed, 1)),
        seenWords,
        c.put(0, 1, 2), // samples
        c.put(10, 11, 12), // positions
        c.put(options.words()),
        chosen);
    int[] ids = new int[rows];
    int[] ranks = new int[rows];
    int[] seenNow = words(seen, rows);
    for (int r = 0; r < rows; r++) {
      ids[r] = choose(x, r, n, allowed, seen, options);
      for (int id = 0; id < n; id++) {
        ranks[r] += x[r * n + id] > x[r * n + ids[r]] ? 1 : 0;
      }
      seenNow[r * Math.ceilDiv(n, 32) + ids[r] / 32] |= 1 << ids[r] % 32;
    }
    double[] lse = logSums(x, rows, 1);
    c.compare("id", chosen.ids(), ids);
    c.compare("logprob", chosen.logprobs(), r -> x[r * n + ids[r]] - lse[r]);
    c.compare("rank", chosen.ranks(), ranks);
    c.compare("error", chosen.errors(), r -> 0);
    c.compare("seen", seenWords, seenNow);
  }

  private static int choose(
      float[] x, int row, int n, BitSet allowed, BitSet seen, SamplingOptions options) {
    float[] logits = Arrays.copyOfRange(x, row * n, (row + 1) * n);
    return PlainSampler.choose(logits, allowed, seen, options, row, 10 + row);
  }

  private static double[] logSums(float[] x, int rows, float temperature) {
    double[] sums = new double[rows];
    for (int i = 0; i < x.length; i++) {
      sums[i / (x.length / rows)] += Math.exp(x[i] / temperature);
    }
    return Arrays.stream(sums).map(Math::log).toArray();
  }

  /** {@code copies} of a bit set over 1000 ids. */
  private static int[] words(BitSet ids, int copies) {
    int n = Math.ceilDiv(1000, 32);
    int[] words = new int[copies * n];
    ids.stream()
        .forEach(
            id -> IntStream.range(0, copies).forEach(c -> words[c * n + id / 32] |= 1 << id % 32));
    return words;
  }
}
