package dev.loupe.cuda.selftest;

import static dev.loupe.cuda.selftest.SelfTestInputs.F32;
import static dev.loupe.cuda.selftest.SelfTestInputs.FLOATS;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.kernels.AttentionKernels;
import dev.loupe.cuda.kernels.AttentionMapKernels;
import dev.loupe.cuda.kernels.AttentionMapKernels.Cells;
import dev.loupe.cuda.kernels.AttentionMapKernels.Layout;
import dev.loupe.cuda.kernels.CacheShape;
import dev.loupe.cuda.kernels.DecodeAttention;
import dev.loupe.cuda.kernels.Segment;
import dev.loupe.cuda.kernels.Segments;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.stream.IntStream;

/** The families of attention, all held to the same answer. */
final class AttentionSelfTest {
  private static final int HEADS = 2;
  private static final int SEQUENCES = 3;

  /** Rows that see up to four tiles of keys, and several blocks of rows. */
  private static final List<Segment> LONG =
      List.of(new Segment(2, 200, 1, 33), new Segment(205, 5, 2, 0));

  /** Two tiles of rows that see up to three tiles of keys, which is what maps are made of. */
  private static final List<Segment> LAST =
      List.of(new Segment(2, 66, 1, 80), new Segment(71, 5, 2, 0));

  /** Some rows that see more than a tile of keys: what the width of a head is tested with. */
  private static final List<Segment> FEW =
      List.of(new Segment(0, 3, 1, 1), new Segment(5, 13, 2, 58));

  /** Two tiles of rows, the second nearly empty, and a short segment. */
  private static final List<Segment> SHORT =
      List.of(new Segment(0, 3, 1, 1), new Segment(5, 66, 2, 5));

  /** Width of heads whose last key is the last element of the cache. */
  private static final int TIGHT = 56;

  /** Widths of a head that leave a part of each kernel's own width empty, and one that does not. */
  private static final int[] HEAD_SIZES = {8, 24, 40, 72, 88, 120, 64, TIGHT};

  /** Widths whose rows are one, two and four loads of a group of lanes. */
  private static final int[] MAPPED_HEAD_SIZES = {24, 40, 120, 64, TIGHT};

  private final SelfTestInputs c;

  AttentionSelfTest(SelfTestInputs c) {
    this.c = c;
  }

  /**
   * What is asked of the kernels.
   *
   * @param segments of the rows; there are rows before, between and behind them
   * @param scale of the scores
   */
  private record Problem(int headSize, List<Segment> segments, boolean causal, float scale) {
    static Problem of(int headSize, List<Segment> most) {
      return switch (headSize) {
        case 64 -> new Problem(headSize, most, true, 0.5f);
        // scores so large that exp of one overflows
        case 40 -> new Problem(headSize, SHORT, true, 8);
        default -> new Problem(headSize, FEW, headSize != 72 && headSize != 120, 0.5f);
      };
    }

    int rows() {
      return segments.getLast().endRow() + 3;
    }

    /** With positions behind the last key, but for the tight one. */
    CacheShape cache() {
      int keys = segments.stream().mapToInt(Segment::keys).max().orElseThrow();
      return new CacheShape(SEQUENCES, HEADS, headSize == TIGHT ? keys : keys + 9, headSize);
    }

    /** Sequence, keys and position of each row; no keys where it is in no segment. */
    int[][] places() {
      int[][] places = new int[rows()][3];
      for (Segment s : segments) {
        for (int r = 0; r < s.rows(); r++) {
          int position = s.firstPosition() + r;
          int keys = causal ? position + 1 : s.keys();
          places[s.firstRow() + r] = new int[] {s.sequence(), keys, position};
        }
      }
      return places;
    }
  }

  /**
   * Rows, each with the keys that it sees, and the exact answer. Of the cache, positions that no
   * row sees hold NaN; so do the rows of q that see none.
   */
  private final class Attended {
    final CacheShape shape;
    final int[][] places;
    final float scale;
    final DeviceBuffer qkv;
    final DeviceBuffer k;
    final DeviceBuffer v;
    final double[][] scores; // [row and head][key]
    final double[][] p;
    final double[] lse;
    private final float[] values;

    Attended(CacheShape shape, int[][] places, float scale, Element activations, Element cache) {
      this(shape, places, scale, activations, cache, false);
    }

    /**
     * @param exact whether the products q.k shall be exact in f32, so that none depends on the
     *     order of a sum
     */
    Attended(
        CacheShape shape,
        int[][] places,
        float scale,
        Element activations,
        Element cache,
        boolean exact) {
      this.shape = shape;
      this.places = places;
      this.scale = scale;
      float[] q = c.floats(exact ? Element.F16 : activations, places.length * 3 * shape.width());
      float[] keys = c.floats(exact ? Element.F16 : cache, (int) shape.elements());
      if (exact) {
        repeat(keys);
      }
      values = c.floats(cache, keys.length);
      int[] seen = new int[SEQUENCES];
      for (int row = 0; row < places.length; row++) {
        int[] place = places[row];
        if (place[1] > 0) {
          seen[place[0]] = Math.max(seen[place[0]], place[1]);
        } else {
          Arrays.fill(q, row * 3 * shape.width(), (row + 1) * 3 * shape.width(), Float.NaN);
        }
      }
      for (int s = 0; s < SEQUENCES * HEADS; s++) {
        int from = (s * shape.capacity() + seen[s / HEADS]) * shape.headSize();
        int to = (s + 1) * shape.capacity() * shape.headSize();
        Arrays.fill(keys, from, to, Float.NaN);
        Arrays.fill(values, from, to, Float.NaN);
      }
      qkv = c.put(activations, q);
      k = c.put(cache, keys);
      v = c.put(cache, values);
      scores = new double[places.length * HEADS][];
      p = new double[scores.length][];
      lse = new double[scores.length];
      for (int i = 0; i < scores.length; i++) {
        answer(i, q, keys);
      }
    }

    /** Makes some keys of each head equal: the first and the third, and so on. */
    private void repeat(float[] keys) {
      int row = shape.headSize();
      for (int at = 0; at + 3 * row <= keys.length; at += 4 * row) {
        System.arraycopy(keys, at, keys, at + 2 * row, row);
      }
    }

    private void answer(int i, float[] q, float[] keys) {
      int d = shape.headSize();
      int row = i / HEADS;
      int n = places[row][1];
      int at = row * 3 * shape.width() + i % HEADS * d;
      scores[i] = new double[n];
      for (int key = 0; key < n; key++) {
        double dot = 0;
        for (int j = 0; j < d; j++) {
          dot += (double) q[at + j] * keys[at(i, key) + j];
        }
        scores[i][key] = scale * dot;
      }
      double most = Arrays.stream(scores[i]).max().orElse(Double.NaN);
      lse[i] = most + Math.log(Arrays.stream(scores[i]).map(s -> Math.exp(s - most)).sum());
      p[i] = Arrays.stream(scores[i]).map(s -> Math.exp(s - lse[i])).toArray();
    }

    private int at(int i, int key) {
      int sequence = places[i / HEADS][0];
      return ((sequence * HEADS + i % HEADS) * shape.capacity() + key) * shape.headSize();
    }

    /** [R, C]; NaN where a row sees no key. */
    double y(int column) {
      int i = column / shape.headSize();
      double y = p[i].length == 0 ? Double.NaN : 0;
      for (int key = 0; key < p[i].length; key++) {
        y += p[i][key] * values[at(i, key) + column % shape.headSize()];
      }
      return y;
    }

    AttentionMapKernels.Source source(Problem problem) {
      int[] segments =
          problem.segments().stream()
              .flatMapToInt(
                  s -> IntStream.of(s.firstRow(), s.rows(), s.sequence(), s.firstPosition()))
              .toArray();
      float[] sums = new float[lse.length];
      for (int i = 0; i < sums.length; i++) {
        sums[i] = (float) lse[i];
      }
      return new AttentionMapKernels.Source(
          qkv,
          k,
          c.put(F32, sums),
          c.put(segments),
          problem.segments().size(),
          problem.causal(),
          scale);
    }
  }

  void attention(Variant v, Element element) {
    for (int headSize : HEAD_SIZES) {
      Problem problem = Problem.of(headSize, LONG);
      try (AttentionKernels kernels = new AttentionKernels(c.gpu(), problem.cache(), element);
          Segments segments = new Segments(c.gpu(), problem.segments().size())) {
        if (!kernels.reason(v).isEmpty()) {
          continue;
        }
        c.endWithMemory(headSize == TIGHT);
        Attended a =
            new Attended(problem.cache(), problem.places(), problem.scale(), element, element);
        segments.set(problem.segments());
        DeviceBuffer y = c.empty(element, (long) problem.rows() * problem.cache().width());
        DeviceBuffer lse = c.empty(F32, a.lse.length);
        kernels.run(
            v,
            segments,
            problem.causal(),
            problem.scale(),
            new AttentionKernels.Buffers(a.qkv, a.k, a.v, y, lse));
        String of = " of heads %d wide".formatted(headSize);
        c.compare("y" + of, y, a::y);
        c.compare("lse" + of, lse, i -> a.lse[i]);
      }
    }
  }

  void decodeAttention(Variant v, Element cache) {
    for (Element activations : FLOATS) {
      decodeAttention(activations, cache, 64, 1, 31, 0, 33, 128, 129, 257, 300);
    }
    // heads whose rows are one, two and four loads of a group of lanes
    decodeAttention(F32, cache, 24, 64, 130);
    decodeAttention(F32, cache, 120, 0, 70, 200);
    decodeAttention(F32, cache, 40, 5, 96, 257);
    decodeAttention(F32, cache, TIGHT, 5, 97);
  }

  /**
   * Rows with so many keys, and two behind them that the cache does not have: a sequence and a key
   * too many.
   */
  private void decodeAttention(Element activations, Element cache, int headSize, int... keys) {
    int good = keys.length;
    int rows = good + 2;
    int capacity = Arrays.stream(keys).max().orElseThrow();
    CacheShape shape = new CacheShape(SEQUENCES, HEADS, capacity, headSize);
    int[][] places = new int[rows][3];
    int[] sequence = new int[rows];
    int[] n = new int[rows];
    for (int r = 0; r < good; r++) {
      sequence[r] = (r + 1) % SEQUENCES;
      n[r] = keys[r];
      places[r] = new int[] {sequence[r], n[r], n[r] - 1};
    }
    sequence[good] = SEQUENCES;
    n[good] = 1;
    n[good + 1] = capacity + 1;
    c.endWithMemory(headSize == TIGHT);
    Attended a = new Attended(shape, places, headSize == 40 ? 8 : 0.5f, activations, cache);
    try (DecodeAttention kernel = new DecodeAttention(c.gpu(), shape, activations, cache, rows)) {
      DeviceBuffer y = c.empty(activations, (long) rows * shape.width());
      DeviceBuffer lse = c.empty(F32, a.lse.length);
      kernel.run(
          new DecodeAttention.Rows(a.qkv, c.put(sequence), c.put(n), rows, capacity),
          new DecodeAttention.Cache(a.k, a.v),
          a.scale,
          y,
          lse);
      String of = " of q in %s, heads %d wide".formatted(activations.suffix(), headSize);
      c.compare("y" + of, y, i -> n[i / shape.width()] == 0 ? 0 : a.y(i));
      c.compare("lse" + of, lse, i -> n[i / HEADS] == 0 ? Double.NEGATIVE_INFINITY : a.lse[i]);
    }
  }

  /** What the maps of tensor cores take: q in the element of the cache. */
  private static List<Element> queries(Variant v, Element cache) {
    return v.name().equals("v3") ? List.of(cache) : FLOATS;
  }

  /** The second head first, and not the first row. */
  private final class Selected {
    final Attended a;
    final Problem problem;
    final AttentionMapKernels kernels;
    final AttentionMapKernels.Source source;
    final AttentionMapKernels.Selection want;
    final int rows;

    Selected(Problem problem, Element activations, Element cache, boolean exact) {
      this.problem = problem;
      c.endWithMemory(problem.headSize() == TIGHT);
      a =
          new Attended(
              problem.cache(), problem.places(), problem.scale(), activations, cache, exact);
      kernels = new AttentionMapKernels(c.gpu(), a.shape, activations, cache);
      source = a.source(problem);
      rows = problem.rows() - 1;
      want = new AttentionMapKernels.Selection(c.put(1, 0), HEADS, 1, rows);
    }

    /** From [heads, rows], to [R, heads]. */
    int headAndRow(int i) {
      return (i % rows + 1) * HEADS + 1 - i / rows;
    }

    /** Entries of a head without those above the diagonal. */
    int entries() {
      return IntStream.range(0, rows).map(i -> a.p[headAndRow(i)].length).sum();
    }
  }

  void attentionMap(Variant v, Element cache) {
    for (int headSize : MAPPED_HEAD_SIZES) {
      Problem problem = Problem.of(headSize, LAST);
      for (Element q : headSize == 24 ? queries(v, cache) : queries(v, cache).subList(0, 1)) {
        Selected s = new Selected(problem, q, cache, false);
        attentionMap(v, s, headSize + " wide, q in " + q.suffix());
      }
    }
  }

  private void attentionMap(Variant v, Selected s, String heads) {
    int keys = s.a.shape.capacity();
    boolean all = s.a.shape.headSize() == 24;
    for (Cells cells : Cells.values()) {
      for (Element to : List.of(F32, Element.F16)) {
        if (!all && (cells == Cells.SCORES || to != F32)) {
          continue; // how they are written has nothing to do with the width
        }
        // some columns more than keys, or fewer
        int columns = cells == Cells.SCORES ? keys - 20 : keys + 3;
        DeviceBuffer out = c.empty(to, (long) HEADS * s.rows * columns);
        s.kernels.map(v, s.source, s.want, cells, new Layout.Dense(columns), out);
        boolean scores = cells == Cells.SCORES;
        c.compare(
            "%s in %s of heads %s"
                .formatted(cells.name().toLowerCase(Locale.ROOT), to.suffix(), heads),
            out,
            i -> {
              int row = s.headAndRow(i / columns);
              int key = i % columns;
              double none = scores ? Double.NEGATIVE_INFINITY : 0;
              return s.a.p[row].length == 0
                  ? Double.NaN
                  : key >= s.a.p[row].length
                      ? none
                      : scores ? s.a.scores[row][key] : s.a.p[row][key];
            });
      }
    }
    if (!s.problem.causal()) {
      return; // what is packed is causal
    }
    double[] packed = new double[HEADS * s.entries()];
    int n = 0;
    for (int i = 0; i < HEADS * s.rows; i++) {
      for (double p : s.a.p[s.headAndRow(i)]) {
        packed[n++] = p;
      }
    }
    DeviceBuffer out = c.empty(F32, packed.length);
    s.kernels.map(
        v, s.source, s.want, Cells.PROBABILITIES, new Layout.Packed(keys, s.entries()), out);
    c.compare("packed probabilities of heads " + heads, out, i -> packed[i]);
  }

  void attentionStatistics(Variant v, Element cache) {
    for (int headSize : MAPPED_HEAD_SIZES) {
      Problem problem = Problem.of(headSize, LAST);
      for (Element q : headSize == 24 ? queries(v, cache) : queries(v, cache).subList(0, 1)) {
        Selected s = new Selected(problem, q, cache, true); // ranks are compared
        attentionStatistics(v, s, " of heads %d wide, q in %s".formatted(headSize, q.suffix()));
      }
    }
  }

  private void attentionStatistics(Variant v, Selected s, String of) {
    int top = s.a.shape.headSize() == 24 ? AttentionMapKernels.MAX_TOP : 3;
    int cells = HEADS * s.rows;
    AttentionMapKernels.Statistics out =
        new AttentionMapKernels.Statistics(
            c.empty(F32, cells),
            c.empty(F32, cells),
            c.empty(Element.I32, (long) cells * top),
            c.empty(F32, (long) cells * top),
            top);
    s.kernels.statistics(v, s.source, s.want, out);
    double[] entropy = new double[cells];
    double[] distance = new double[cells];
    int[][] ranked = new int[cells][];
    for (int i = 0; i < cells; i++) {
      int row = s.headAndRow(i);
      double[] scores = s.a.scores[row];
      if (scores.length == 0) {
        entropy[i] = Double.NaN;
        distance[i] = Double.NaN;
      }
      for (int key = 0; key < scores.length; key++) {
        entropy[i] -= s.a.p[row][key] * (scores[key] - s.a.lse[row]);
        distance[i] += s.a.p[row][key] * Math.abs(s.a.places[row / HEADS][2] - key);
      }
      ranked[i] =
          IntStream.range(0, scores.length)
              .boxed()
              .sorted(Comparator.comparingDouble(key -> -scores[key]))
              .mapToInt(key -> key)
              .toArray();
    }
    c.compare("entropy" + of, out.entropy(), i -> entropy[i]);
    c.compare("distance" + of, out.distance(), i -> distance[i]);
    c.compare(
        "top keys" + of,
        out.topKeys(),
        i -> i % top < ranked[i / top].length ? ranked[i / top][i % top] : -1);
    c.compare(
        "top probabilities" + of,
        out.topProbabilities(),
        i -> {
          double[] p = s.a.p[s.headAndRow(i / top)];
          return p.length == 0 ? Double.NaN : i % top < p.length ? p[ranked[i / top][i % top]] : 0;
        });
  }
}
