package dev.loupe.cuda.selftest;

import static dev.loupe.cuda.selftest.AttentionProblem.HEADS;
import static dev.loupe.cuda.selftest.AttentionProblem.SEQUENCES;
import static dev.loupe.cuda.selftest.AttentionProblem.TIGHT;
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
  /** Rows that see up to four tiles of keys, and several blocks of rows. */
  private static final List<Segment> LONG =
      List.of(new Segment(2, 200, 1, 33), new Segment(205, 5, 2, 0));

  /** Two tiles of rows that see up to three tiles of keys, which is what maps are made of. */
  private static final List<Segment> LAST =
      List.of(new Segment(2, 66, 1, 80), new Segment(71, 5, 2, 0));

  /** Widths of a head that leave a part of each kernel's own width empty, and one that does not. */
  private static final int[] HEAD_SIZES = {8, 24, 40, 72, 88, 120, 64, TIGHT};

  /** Widths whose rows are one, two and four loads of a group of lanes. */
  private static final int[] MAPPED_HEAD_SIZES = {24, 40, 120, 64, TIGHT};

  private final SelfTestInputs c;

  AttentionSelfTest(SelfTestInputs c) {
    this.c = c;
  }

  void attention(Variant v, Element element) {
    for (int headSize : HEAD_SIZES) {
      AttentionProblem problem = AttentionProblem.of(headSize, LONG);
      try (AttentionKernels kernels = new AttentionKernels(c.gpu(), problem.cache(), element);
          Segments segments = new Segments(c.gpu(), problem.segments().size())) {
        if (!kernels.reason(v).isEmpty()) {
          continue;
        }
        c.endWithMemory(headSize == TIGHT);
        AttentionAnswer a =
            new AttentionAnswer(
                c, problem.cache(), problem.places(), problem.scale(), element, element);
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
    AttentionAnswer a =
        new AttentionAnswer(c, shape, places, headSize == 40 ? 8 : 0.5f, activations, cache);
    try (DecodeAttention kernel = new DecodeAttention(c.gpu(), shape, activations, cache, rows)) {
      DeviceBuffer y = c.empty(activations, (long) rows * shape.width());
      DeviceBuffer lse = c.empty(F32, a.lse.length);
      DecodeAttention.Rows step =
          new DecodeAttention.Rows(a.qkv, c.put(sequence), c.put(n), rows, capacity);
      DecodeAttention.Cache kv = new DecodeAttention.Cache(a.k, a.v);
      for (String run : List.of("", " again")) { // on what the first has left between its blocks
        y.fill((byte) 0xff);
        lse.fill((byte) 0xff);
        kernel.run(step, kv, a.scale, y, lse);
        String of = " of q in %s, heads %d wide%s".formatted(activations.suffix(), headSize, run);
        c.compare("y" + of, y, i -> n[i / shape.width()] == 0 ? 0 : a.y(i));
        c.compare("lse" + of, lse, i -> n[i / HEADS] == 0 ? Double.NEGATIVE_INFINITY : a.lse[i]);
      }
    }
  }

  /** What the maps of tensor cores take: q in the element of the cache. */
  private static List<Element> queries(Variant v, Element cache) {
    return v.name().equals("v3") ? List.of(cache) : FLOATS;
  }

  /** The second head first, and not the first row. */
  private final class Selected {
    final AttentionAnswer a;
    final AttentionProblem problem;
    final AttentionMapKernels kernels;
    final AttentionMapKernels.Source source;
    final AttentionMapKernels.Selection want;
    final int rows;

    Selected(AttentionProblem problem, Element activations, Element cache, boolean exact) {
      this.problem = problem;
      c.endWithMemory(problem.headSize() == TIGHT);
      a =
          new AttentionAnswer(
              c, problem.cache(), problem.places(), problem.scale(), activations, cache, exact);
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
      AttentionProblem problem = AttentionProblem.of(headSize, LAST);
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
      AttentionProblem problem = AttentionProblem.of(headSize, LAST);
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
