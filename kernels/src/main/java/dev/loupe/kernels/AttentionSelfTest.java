package dev.loupe.kernels;

import static dev.loupe.kernels.Comparison.F32;
import static dev.loupe.kernels.Comparison.FLOATS;

import dev.loupe.kernels.AttentionMapKernels.Cells;
import dev.loupe.kernels.AttentionMapKernels.Layout;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.stream.IntStream;

/** The families of attention, all held to the same answer. */
final class AttentionSelfTest {
  // 130 keys before the first segment: more than one split or tile of keys
  private static final CacheShape CACHE = new CacheShape(2, 2, 160, 64);
  private static final List<Segment> SEGMENTS =
      List.of(new Segment(0, 7, 1, 130), new Segment(7, 5, 0, 0));
  private static final int ROWS = 12; // of the segments
  private static final float SCALE = 0.5f;

  private final Comparison c;

  AttentionSelfTest(Comparison c) {
    this.c = c;
  }

  /** The rows of {@link #SEGMENTS}, each with the keys up to its own, and the exact answer. */
  private final class Attended {
    final int heads = CACHE.heads();
    final int d = CACHE.headSize();
    final DeviceBuffer qkv;
    final DeviceBuffer k;
    final DeviceBuffer v;
    final int[] position = new int[ROWS];
    final int[] sequence = new int[ROWS];
    final double[][] scores = new double[ROWS * heads][]; // [row and head][key]
    final double[] lse = new double[ROWS * heads];
    private final float[] values;

    Attended(Element activations, Element cache) {
      float[] q = c.floats(activations, ROWS * 3 * CACHE.width());
      float[] keys = c.floats(cache, (int) CACHE.elements());
      values = c.floats(cache, keys.length);
      qkv = c.put(activations, q);
      k = c.put(cache, keys);
      v = c.put(cache, values);
      for (Segment s : SEGMENTS) {
        for (int r = 0; r < s.rows(); r++) {
          position[s.firstRow() + r] = s.firstPosition() + r;
          sequence[s.firstRow() + r] = s.sequence();
        }
      }
      for (int i = 0; i < scores.length; i++) {
        int row = i / heads;
        scores[i] = new double[position[row] + 1];
        double sum = 0; // scores are small: no maximum is needed
        for (int key = 0; key < scores[i].length; key++) {
          for (int j = 0; j < d; j++) {
            double product =
                (double) q[row * 3 * CACHE.width() + i % heads * d + j] * keys[at(i, key, j)];
            scores[i][key] += SCALE * product;
          }
          sum += Math.exp(scores[i][key]);
        }
        lse[i] = Math.log(sum);
      }
    }

    private int at(int i, int key, int j) {
      return ((sequence[i / heads] * heads + i % heads) * CACHE.capacity() + key) * d + j;
    }

    double p(int i, int key) {
      return Math.exp(scores[i][key] - lse[i]);
    }

    /** [R, C]. */
    double y(int column) {
      int i = column / d;
      double y = 0;
      for (int key = 0; key < scores[i].length; key++) {
        y += p(i, key) * values[at(i, key, column % d)];
      }
      return y;
    }

    AttentionMapKernels.Source source() {
      int[] segments = new int[4 * SEGMENTS.size()];
      for (int i = 0; i < SEGMENTS.size(); i++) {
        Segment s = SEGMENTS.get(i);
        segments[4 * i] = s.firstRow();
        segments[4 * i + 1] = s.rows();
        segments[4 * i + 2] = s.sequence();
        segments[4 * i + 3] = s.firstPosition();
      }
      float[] sums = new float[lse.length];
      for (int i = 0; i < sums.length; i++) {
        sums[i] = (float) lse[i];
      }
      return new AttentionMapKernels.Source(
          qkv, k, c.put(F32, sums), c.put(segments), SEGMENTS.size(), true, SCALE);
    }
  }

  void attention(Variant v, Element element) {
    Attended a = new Attended(element, element);
    try (AttentionKernels kernels = new AttentionKernels(c.gpu(), CACHE, element);
        Segments segments = new Segments(c.gpu(), SEGMENTS.size())) {
      segments.set(SEGMENTS);
      DeviceBuffer y = c.empty(element, (long) ROWS * CACHE.width());
      DeviceBuffer lse = c.empty(F32, a.lse.length);
      kernels.run(v, segments, true, SCALE, new AttentionKernels.Buffers(a.qkv, a.k, a.v, y, lse));
      c.compare("y", y, a::y);
      c.compare("lse", lse, i -> a.lse[i]);
    }
  }

  void decodeAttention(Variant v, Element cache) {
    for (Element activations : FLOATS) {
      Attended a = new Attended(activations, cache);
      int[] keys = new int[ROWS];
      Arrays.setAll(keys, r -> a.position[r] + 1);
      try (DecodeAttention kernel = new DecodeAttention(c.gpu(), CACHE, activations, cache, ROWS)) {
        DeviceBuffer y = c.empty(activations, (long) ROWS * CACHE.width());
        DeviceBuffer lse = c.empty(F32, a.lse.length);
        kernel.run(
            new DecodeAttention.Rows(a.qkv, c.put(a.sequence), c.put(keys), ROWS, CACHE.capacity()),
            new DecodeAttention.Cache(a.k, a.v),
            SCALE,
            y,
            lse);
        c.compare("y of q in " + activations.suffix(), y, a::y);
        c.compare("lse of q in " + activations.suffix(), lse, i -> a.lse[i]);
      }
    }
  }

  /** What the maps of tensor cores take: q in the element of the cache. */
  private static Element queries(Variant v, Element cache) {
    return v.name().equals("v3") ? cache : F32;
  }

  void attentionMap(Variant v, Element cache) {
    Attended a = new Attended(queries(v, cache), cache);
    AttentionMapKernels kernels = new AttentionMapKernels(c.gpu(), CACHE, queries(v, cache), cache);
    AttentionMapKernels.Source source = a.source();
    AttentionMapKernels.Selection want =
        new AttentionMapKernels.Selection(c.put(1, 0), 2, 0, ROWS); // the second head first
    int columns = 140;
    for (Cells cells : Cells.values()) {
      for (Element to : List.of(F32, Element.F16)) {
        DeviceBuffer out = c.empty(to, 2L * ROWS * columns);
        kernels.map(v, source, want, cells, new Layout.Dense(columns), out);
        boolean scores = cells == Cells.SCORES;
        c.compare(
            "%s in %s".formatted(cells.name().toLowerCase(Locale.ROOT), to.suffix()),
            out,
            i -> {
              int row = headAndRow(i / columns);
              boolean key = i % columns < a.scores[row].length;
              double none = scores ? Double.NEGATIVE_INFINITY : 0;
              return !key ? none : scores ? a.scores[row][i % columns] : a.p(row, i % columns);
            });
      }
    }
    double[] packed = new double[2 * entries()];
    int n = 0;
    for (int i = 0; i < 2 * ROWS; i++) {
      int row = headAndRow(i);
      for (int key = 0; key < a.scores[row].length; key++) {
        packed[n++] = a.p(row, key);
      }
    }
    DeviceBuffer out = c.empty(F32, packed.length);
    kernels.map(v, source, want, Cells.PROBABILITIES, new Layout.Packed(columns, entries()), out);
    c.compare("packed probabilities", out, i -> packed[i]);
  }

  private static int entries() {
    return SEGMENTS.stream()
        .mapToInt(s -> (int) AttentionMapKernels.packedEntries(s.firstPosition(), s.rows()))
        .sum();
  }

  /** From [2, R], heads in descending order, to [R, 2]. */
  private static int headAndRow(int i) {
    return i % ROWS * 2 + 1 - i / ROWS;
  }

  void attentionStatistics(Variant v, Element cache) {
    Attended a = new Attended(queries(v, cache), cache);
    int top = 3;
    AttentionMapKernels.Statistics out =
        new AttentionMapKernels.Statistics(
            c.empty(F32, 2 * ROWS),
            c.empty(F32, 2 * ROWS),
            c.empty(Element.I32, 2L * ROWS * top),
            c.empty(F32, 2L * ROWS * top),
            top);
    new AttentionMapKernels(c.gpu(), CACHE, queries(v, cache), cache)
        .statistics(v, a.source(), new AttentionMapKernels.Selection(c.put(1, 0), 2, 0, ROWS), out);
    double[] entropy = new double[2 * ROWS];
    double[] distance = new double[2 * ROWS];
    int[][] ranked = new int[2 * ROWS][];
    for (int i = 0; i < entropy.length; i++) {
      int row = headAndRow(i);
      for (int key = 0; key < a.scores[row].length; key++) {
        entropy[i] -= a.p(row, key) * (a.scores[row][key] - a.lse[row]);
        distance[i] += a.p(row, key) * (a.position[row / 2] - key);
      }
      ranked[i] =
          IntStream.range(0, a.scores[row].length)
              .boxed()
              .sorted(Comparator.comparingDouble(key -> -a.scores[row][key]))
              .mapToInt(key -> key)
              .toArray();
    }
    c.compare("entropy", out.entropy(), i -> entropy[i]);
    c.compare("distance", out.distance(), i -> distance[i]);
    c.compare(
        "top keys",
        out.topKeys(),
        i -> i % top < ranked[i / top].length ? ranked[i / top][i % top] : -1);
    c.compare(
        "top probabilities",
        out.topProbabilities(),
        i ->
            i % top < ranked[i / top].length
                ? a.p(headAndRow(i / top), ranked[i / top][i % top])
                : 0);
  }
}
