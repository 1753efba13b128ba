package dev.loupe.kernels;

import dev.loupe.kernels.AttentionMapKernels.Cells;
import dev.loupe.kernels.AttentionMapKernels.Layout;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import java.util.function.IntToDoubleFunction;
import java.util.stream.IntStream;

/**
 * Runs each kernel family on a GPU, every variant in every element that the card supports, and
 * compares with plain loops in double precision. Shapes are small and inputs always the same, so
 * that users can run it: it tells a card, a driver or an image that computes wrongly, and leaves
 * awkward shapes to the tests.
 */
public final class SelfTest implements AutoCloseable {
  /**
   * What came of a family.
   *
   * @param comparisons results that were looked at
   * @param wrong those of them that are off
   * @param text one line for people
   */
  public record Finding(String family, int comparisons, int wrong, String text) {
    /** True if all results are right. */
    public boolean isRight() {
      return comparisons > 0 && wrong == 0;
    }
  }

  private static final Element F32 = Element.F32;
  private static final List<Element> FLOATS = List.of(F32, Element.F16, Element.BF16);

  // 130 keys before the first segment: more than one split or tile of keys
  private static final CacheShape CACHE = new CacheShape(2, 2, 160, 64);
  private static final List<Segment> SEGMENTS =
      List.of(new Segment(0, 7, 1, 130), new Segment(7, 5, 0, 0));
  private static final int ROWS = 12; // of the segments
  private static final float SCALE = 0.5f;

  private final Gpu gpu;
  private final Random random = new Random(20_26);
  private final List<DeviceBuffer> buffers = new ArrayList<>();
  private String variant = "";
  private int comparisons;
  private int wrong;
  private String firstWrong = "";
  private double worst;

  private SelfTest(Gpu gpu) {
    this.gpu = gpu;
  }

  /** The families, in the order of the {@link KernelCatalogue}. */
  public static List<String> families() {
    return KernelCatalogue.all().stream().map(Variant::family).distinct().toList();
  }

  /** Tests one family; a failure of the GPU is a finding too. */
  public static Finding of(Gpu gpu, String family) {
    try (SelfTest test = new SelfTest(gpu)) {
      test.run(family);
      String text =
          test.wrong == 0
              ? "ok: %d results, worst error %.0f%% of what is allowed"
                  .formatted(test.comparisons, 100 * test.worst)
              : "WRONG: %d of %d results, the first: %s"
                  .formatted(test.wrong, test.comparisons, test.firstWrong);
      return new Finding(family, test.comparisons, test.wrong, text);
    } catch (GpuException e) {
      return new Finding(family, 0, 0, "fails: " + e.getMessage());
    }
  }

  private void run(String family) {
    switch (family) {
      case "weights" -> each(family, this::weights);
      case "embedding" -> each(family, this::embedding);
      case "layernorm" -> each(family, this::layerNorm);
      case "linear" -> each(family, this::linear);
      case "gemv" -> each(family, this::gemv);
      case "epilogue" ->
          each(family, (v, element) -> linear(element, element, 9, this::epilogueAlone));
      case "attention" -> each(family, this::attention);
      case "attention_decode" -> each(family, this::decodeAttention);
      case "attention_map" -> each(family, this::attentionMap);
      case "attention_stats" -> each(family, this::attentionStatistics);
      case "pointwise" -> each(family, this::pointwise);
      case "sample" -> each(family, this::sample);
      case "step" -> each(family, this::step);
      default -> throw new IllegalArgumentException("no self-test of " + family);
    }
  }

  private interface Case {
    void run(Variant variant, Element element);
  }

  private void each(String family, Case test) {
    for (Variant v : KernelCatalogue.of(family)) {
      for (Element element : Element.values()) {
        if (v.supports(element, gpu.computeCapability())) {
          variant = v.name() + " " + element.suffix();
          test.run(v, element);
        }
      }
    }
  }

  /** Random values within 1; the short elements hold them exactly. */
  private float[] floats(Element element, int n) {
    float[] values = new float[n];
    for (int i = 0; i < n; i++) {
      values[i] = element == F32 ? random.nextFloat(-1, 1) : random.nextInt(-127, 128) / 128f;
    }
    return values;
  }

  private static float nearest(Element element, float x) {
    return switch (element) {
      case F16 -> Float.float16ToFloat(Float.floatToFloat16(x));
      case BF16 -> Element.fromBf16(Element.toBf16(x));
      default -> x;
    };
  }

  /** Poisoned: NaN, or -1, so that what no kernel writes is seen. */
  private DeviceBuffer empty(Element element, long n) {
    DeviceBuffer buffer = gpu.allocate(element, n);
    buffers.add(buffer);
    buffer.fill((byte) 0xff);
    return buffer;
  }

  private DeviceBuffer put(Element element, float[] values) {
    DeviceBuffer buffer = empty(element, values.length);
    buffer.upload(values);
    return buffer;
  }

  private DeviceBuffer put(int... values) {
    DeviceBuffer buffer = empty(Element.I32, values.length);
    buffer.upload(values);
    return buffer;
  }

  private static double[] values(DeviceBuffer buffer) {
    double[] values = new double[Math.toIntExact(buffer.elements())];
    switch (buffer.element()) {
      case F32, F16, BF16 -> {
        float[] floats = new float[values.length];
        buffer.download(floats);
        Arrays.setAll(values, i -> floats[i]);
      }
      case I32 -> {
        int[] ints = new int[values.length];
        buffer.download(ints);
        Arrays.setAll(values, i -> ints[i]);
      }
      case I8 -> {
        byte[] bytes = new byte[values.length];
        buffer.download(MemorySegment.ofArray(bytes));
        Arrays.setAll(values, i -> bytes[i]);
      }
    }
    return values;
  }

  /**
   * Sums of up to some hundred terms in f32, then a rounding or two to the element. A product in
   * tf32 or f16 where f32 was due is further off.
   */
  private static double tolerance(Element element) {
    return switch (element) {
      case F32 -> 1e-4;
      case F16 -> 2e-3;
      case BF16 -> 1.6e-2;
      case I8, I32 -> 0;
    };
  }

  private void compare(String what, DeviceBuffer buffer, IntToDoubleFunction expected) {
    compare(what, buffer, tolerance(buffer.element()), expected);
  }

  /** Each element may be off by {@code tolerance} times 1 + its magnitude; a NaN is a NaN. */
  private void compare(
      String what, DeviceBuffer buffer, double tolerance, IntToDoubleFunction expected) {
    comparisons++;
    double[] actual = values(buffer);
    for (int i = 0; i < actual.length; i++) {
      double right = expected.applyAsDouble(i);
      if (Double.compare(actual[i], right) == 0) {
        continue; // a NaN or infinity that is due, too
      }
      double error = Math.abs(actual[i] - right);
      double share = error / (tolerance * (1 + Math.abs(right)));
      if (!(share <= 1)) {
        String values = String.format(Locale.ROOT, "%.9g, not %.9g", actual[i], right);
        firstWrong =
            wrong++ == 0 ? "%s: %s[%d] is %s".formatted(variant, what, i, values) : firstWrong;
        return;
      }
      worst = Math.max(worst, share);
    }
  }

  /** Exactly these. */
  private void compare(String what, DeviceBuffer buffer, int... expected) {
    compare(what, buffer, 0, i -> expected[i]);
  }

  private void weights(Variant v, Element element) {
    int in = 70; // a group of 64 and a short one; a chunk each
    int outputs = 33;
    WeightKernels kernels = new WeightKernels(gpu);
    float[] w = floats(element, in * outputs); // [outputs, in]
    float[] checkpoint = new float[w.length]; // [in, outputs]
    for (int i = 0; i < w.length; i++) {
      checkpoint[i % in * outputs + i / in] = w[i];
    }
    DeviceBuffer chunks = put(element, checkpoint);
    DeviceBuffer second = put(element, Arrays.copyOfRange(checkpoint, 64 * outputs, w.length));
    Int8Weights q = Int8Weights.quantise(w, in, outputs);
    switch (v.name()) {
      case "repack" -> {
        for (Element to : FLOATS) {
          LinearMap map = new LinearMap(empty(to, w.length), null, null, in, outputs);
          kernels.repack(chunks, 0, 64, map);
          kernels.repack(second, 64, in - 64, map);
          compare("W " + to.suffix(), map.weight(), 0, i -> nearest(to, w[i]));
        }
      }
      case "quantise" -> {
        LinearMap map = int8(in, outputs);
        kernels.quantise(chunks, 0, 64, map);
        kernels.quantise(second, 64, in - 64, map);
        compareInt8("", map, q);
        LinearMap table = int8(in, outputs);
        kernels.quantiseTable(put(element, w), 0, outputs, table);
        compareInt8("table's ", table, q);
      }
      default -> {
        DeviceBuffer out = empty(element, w.length);
        kernels.dequantise(linearMap(Element.I8, w, new float[outputs], in, outputs), out);
        compare("W", out, 0, i -> nearest(element, w[i]));
      }
    }
  }

  private LinearMap int8(int in, int outputs) {
    int groups = Math.ceilDiv(in, Int8Weights.GROUP);
    DeviceBuffer weight = empty(Element.I8, (long) in * outputs);
    return new LinearMap(weight, empty(F32, (long) groups * outputs), null, in, outputs);
  }

  private void compareInt8(String of, LinearMap map, Int8Weights q) {
    compare(of + "bytes", map.weight(), i -> q.values()[i]);
    DeviceBuffer scales = map.scales();
    if (scales != null) {
      compare(of + "scales", scales, 0, i -> q.scales()[i]);
    }
  }

  private void embedding(Variant v, Element element) {
    int width = 40;
    int[] ids = {6, 0, 3, 3, 5};
    int[] positions = {0, 4, 2, 3, 1};
    float[] wte = floats(element, 7 * width);
    float[] wpe = floats(element, 5 * width);
    EmbeddingKernels kernels = new EmbeddingKernels(gpu);
    for (Element to : element == F32 ? List.of(F32) : List.of(F32, element)) {
      DeviceBuffer x = empty(to, (long) ids.length * width);
      kernels.embed(
          put(ids),
          put(positions),
          put(element, wte),
          put(element, wpe),
          x,
          ids.length,
          7,
          5,
          width);
      compare(
          "x " + to.suffix(),
          x,
          i ->
              wte[ids[i / width] * width + i % width]
                  + wpe[positions[i / width] * width + i % width]);
    }
  }

  private void layerNorm(Variant v, Element element) {
    int rows = 5;
    int width = 72;
    float[] x = floats(element, rows * width);
    float[] gamma = floats(F32, width);
    float[] beta = floats(F32, width);
    double[] mean = new double[rows];
    double[] deviation = new double[rows];
    for (int r = 0; r < rows; r++) {
      for (int i = 0; i < width; i++) {
        mean[r] += x[r * width + i] / (double) width;
      }
      double variance = 1e-5;
      for (int i = 0; i < width; i++) {
        variance += Math.pow(x[r * width + i] - mean[r], 2) / width;
      }
      deviation[r] = Math.sqrt(variance);
    }
    LayerNormKernels kernels = new LayerNormKernels(gpu);
    for (Element to : element == F32 ? FLOATS : List.of(element)) {
      DeviceBuffer y = empty(to, x.length);
      kernels.normalize(v, put(element, x), put(F32, gamma), put(F32, beta), y, rows, width, 1e-5f);
      compare(
          "y " + to.suffix(),
          y,
          i ->
              (x[i] - mean[i / width]) / deviation[i / width] * gamma[i % width] + beta[i % width]);
    }
  }

  /** Makes the call of a linear map; {@code sums} are x . W^T in double. */
  private interface Prepare {
    LinearCall call(LinearMap map, DeviceBuffer x, LinearEpilogue epilogue, double[] sums);
  }

  private void linear(Variant v, Element element) {
    LinearKernels kernels = new LinearKernels(gpu);
    for (Element x : element == F32 ? List.of(F32) : List.of(F32, element)) {
      linear(element, x, 9, (map, in, epilogue, sums) -> kernels.prepare(v, map, in, epilogue));
    }
  }

  private void gemv(Variant v, Element element) {
    GemvKernels kernels = new GemvKernels(gpu);
    for (int rows : new int[] {1, 2, 4, 8}) { // a kernel each
      linear(element, F32, rows, (map, x, epilogue, sums) -> kernels.prepare(map, x, epilogue));
    }
  }

  /** As after a product by cuBLAS. */
  private LinearCall epilogueAlone(
      LinearMap map, DeviceBuffer x, LinearEpilogue epilogue, double[] sums) {
    LinearArguments arguments =
        new LinearArguments(new BufferCheck("epilogue", gpu), map, x, epilogue);
    Launch launch =
        arguments.bindEpilogue(gpu.kernel("epilogue", "epilogue_v1_f32" + arguments.ending()));
    float[] product = new float[sums.length];
    for (int i = 0; i < sums.length; i++) {
      product[i] = (float) sums[i];
    }
    launch.set(0, put(F32, product));
    return rows -> launch.set(3, rows).run(Math.ceilDiv(product.length, 1024), 1, 1, 256, 1, 0);
  }

  /** All three epilogues of x . W^T + b with x [rows, 80] and 96 outputs. */
  private void linear(Element element, Element xElement, int rows, Prepare prepare) {
    int in = 80; // for int8: a group of 64 and a short one
    CacheShape cache = new CacheShape(3, 2, 4, 16);
    int outputs = 3 * cache.width();
    float[] x = floats(element == Element.I8 ? F32 : element, rows * in);
    float[] w = floats(element == Element.I8 ? F32 : element, outputs * in);
    float[] bias = floats(F32, outputs);
    float[] residual = floats(F32, rows * outputs);
    LinearMap map = linearMap(element, w, bias, in, outputs);
    double[] sums = new double[rows * outputs];
    for (int i = 0; i < sums.length; i++) {
      for (int k = 0; k < in; k++) {
        sums[i] += (double) x[i / outputs * in + k] * w[i % outputs * in + k];
      }
    }
    IntToDoubleFunction plain = i -> sums[i] + bias[i % outputs];
    String of = "%s of %d %s rows";
    DeviceBuffer input = put(xElement, x);
    for (Element to : xElement == F32 ? List.of(F32) : List.of(F32, xElement)) {
      DeviceBuffer out = empty(to, sums.length);
      Activation f = Activation.GELU_NEW;
      prepare.call(map, input, new LinearEpilogue.Output(out, f), sums).run(rows);
      compare(of.formatted("out", rows, xElement), out, i -> f.of(plain.applyAsDouble(i)));
    }
    DeviceBuffer acc = put(F32, residual);
    prepare.call(map, input, new LinearEpilogue.Residual(acc), sums).run(rows);
    compare(of.formatted("acc", rows, xElement), acc, i -> residual[i] + plain.applyAsDouble(i));

    DeviceBuffer qkv = empty(xElement, sums.length);
    DeviceBuffer[] kv = {empty(xElement, cache.elements()), empty(xElement, cache.elements())};
    int[] sequence = new int[rows];
    int[] position = new int[rows];
    Arrays.setAll(sequence, r -> r % 3);
    Arrays.setAll(position, r -> 3 - r / 3);
    LinearEpilogue append =
        new LinearEpilogue.QkvAppend(qkv, kv[0], kv[1], put(sequence), put(position), cache);
    prepare.call(map, input, append, sums).run(rows);
    compare(of.formatted("qkv", rows, xElement), qkv, plain);
    for (int part = 1; part <= 2; part++) {
      int column = part * cache.width();
      compare(
          of.formatted(part == 1 ? "keys" : "values", rows, xElement),
          kv[part - 1],
          i -> { // [sequence, head, position, D]; NaN where no row went
            int d = cache.headSize();
            int row = i / d / 4 / 2 + (3 - i / d % 4) * 3;
            int at = row * outputs + column + i / d / 4 % 2 * d + i % d;
            return row < rows ? plain.applyAsDouble(at) : Double.NaN;
          });
    }
  }

  /** For int8, {@code w} becomes what the bytes stand for. */
  private LinearMap linearMap(Element element, float[] w, float[] bias, int in, int outputs) {
    DeviceBuffer b = put(F32, bias);
    if (element != Element.I8) {
      return new LinearMap(put(element, w), null, b, in, outputs);
    }
    Int8Weights q = Int8Weights.quantise(w, in, outputs);
    for (int i = 0; i < w.length; i++) {
      w[i] = q.value(i / in, i % in) * q.scale(i / in, i % in);
    }
    DeviceBuffer bytes = empty(Element.I8, w.length);
    bytes.upload(MemorySegment.ofArray(q.values()));
    return new LinearMap(bytes, put(F32, q.scales()), b, in, outputs);
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
      float[] q = floats(activations, ROWS * 3 * CACHE.width());
      float[] keys = floats(cache, (int) CACHE.elements());
      values = floats(cache, keys.length);
      qkv = put(activations, q);
      k = put(cache, keys);
      v = put(cache, values);
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
          qkv, k, put(F32, sums), put(segments), SEGMENTS.size(), true, SCALE);
    }
  }

  private void attention(Variant v, Element element) {
    Attended a = new Attended(element, element);
    try (AttentionKernels kernels = new AttentionKernels(gpu, CACHE, element);
        Segments segments = new Segments(gpu, SEGMENTS.size())) {
      segments.set(SEGMENTS);
      DeviceBuffer y = empty(element, (long) ROWS * CACHE.width());
      DeviceBuffer lse = empty(F32, a.lse.length);
      kernels.run(v, segments, true, SCALE, new AttentionKernels.Buffers(a.qkv, a.k, a.v, y, lse));
      compare("y", y, a::y);
      compare("lse", lse, i -> a.lse[i]);
    }
  }

  private void decodeAttention(Variant v, Element cache) {
    for (Element activations : FLOATS) {
      Attended a = new Attended(activations, cache);
      int[] keys = new int[ROWS];
      Arrays.setAll(keys, r -> a.position[r] + 1);
      try (DecodeAttention kernel = new DecodeAttention(gpu, CACHE, activations, cache, ROWS)) {
        DeviceBuffer y = empty(activations, (long) ROWS * CACHE.width());
        DeviceBuffer lse = empty(F32, a.lse.length);
        kernel.run(
            new DecodeAttention.Rows(a.qkv, put(a.sequence), put(keys), ROWS, CACHE.capacity()),
            new DecodeAttention.Cache(a.k, a.v),
            SCALE,
            y,
            lse);
        compare("y of q in " + activations, y, a::y);
        compare("lse of q in " + activations, lse, i -> a.lse[i]);
      }
    }
  }

  /** What the maps of tensor cores take: q in the element of the cache. */
  private static Element queries(Variant v, Element cache) {
    return v.name().equals("v3") ? cache : F32;
  }

  private void attentionMap(Variant v, Element cache) {
    Attended a = new Attended(queries(v, cache), cache);
    AttentionMapKernels kernels = new AttentionMapKernels(gpu, CACHE, queries(v, cache), cache);
    AttentionMapKernels.Source source = a.source();
    AttentionMapKernels.Selection want =
        new AttentionMapKernels.Selection(put(1, 0), 2, 0, ROWS); // the second head first
    int columns = 140;
    for (Cells cells : Cells.values()) {
      for (Element to : List.of(F32, Element.F16)) {
        DeviceBuffer out = empty(to, 2L * ROWS * columns);
        kernels.map(v, source, want, cells, new Layout.Dense(columns), out);
        boolean scores = cells == Cells.SCORES;
        compare(
            "%s in %s".formatted(cells.name().toLowerCase(Locale.ROOT), to),
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
    DeviceBuffer out = empty(F32, packed.length);
    kernels.map(v, source, want, Cells.PROBABILITIES, new Layout.Packed(columns, entries()), out);
    compare("packed probabilities", out, i -> packed[i]);
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

  private void attentionStatistics(Variant v, Element cache) {
    Attended a = new Attended(queries(v, cache), cache);
    int top = 3;
    AttentionMapKernels.Statistics out =
        new AttentionMapKernels.Statistics(
            empty(F32, 2 * ROWS),
            empty(F32, 2 * ROWS),
            empty(Element.I32, 2L * ROWS * top),
            empty(F32, 2L * ROWS * top),
            top);
    new AttentionMapKernels(gpu, CACHE, queries(v, cache), cache)
        .statistics(v, a.source(), new AttentionMapKernels.Selection(put(1, 0), 2, 0, ROWS), out);
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
    compare("entropy", out.entropy(), i -> entropy[i]);
    compare("distance", out.distance(), i -> distance[i]);
    compare(
        "top keys",
        out.topKeys(),
        i -> i % top < ranked[i / top].length ? ranked[i / top][i % top] : -1);
    compare(
        "top probabilities",
        out.topProbabilities(),
        i ->
            i % top < ranked[i / top].length
                ? a.p(headAndRow(i / top), ranked[i / top][i % top])
                : 0);
  }

  private void pointwise(Variant v, Element element) {
    int n = 1003;
    PointwiseKernels kernels = new PointwiseKernels(gpu);
    float[] x = floats(element, n);
    switch (v.name()) {
      case "residual" -> {
        for (Element other : element == F32 ? FLOATS : List.of(element)) {
          float[] y = floats(other, n);
          DeviceBuffer sum = put(element, x);
          kernels.addResidual(sum, put(other, y), n);
          compare("x + y in " + other, sum, i -> x[i] + y[i]);
        }
      }
      case "activate" -> {
        for (Activation f : Activation.values()) {
          DeviceBuffer y = empty(element, n);
          kernels.activate(f, put(element, x), y, n);
          compare(f.name().toLowerCase(Locale.ROOT), y, i -> f.of(x[i]));
        }
      }
      default -> {
        for (Element to : FLOATS) {
          DeviceBuffer y = empty(to, n);
          kernels.convert(put(element, x), y, n);
          compare("to " + to, y, 0, i -> nearest(to, x[i]));
        }
      }
    }
  }

  private void sample(Variant v, Element element) {
    int rows = 3;
    int vocabulary = 1000;
    float[] x = floats(F32, rows * vocabulary);
    for (int i = 0; i < x.length; i++) {
      x[i] *= 8;
    }
    BitSet allowed = new BitSet();
    IntStream.range(0, vocabulary).filter(id -> id % 7 != 0).forEach(allowed::set);
    BitSet seen = new BitSet();
    IntStream.range(0, vocabulary).filter(id -> id % 5 == 0).forEach(seen::set);
    SampleKernels kernels = new SampleKernels(gpu);
    DeviceBuffer values = put(F32, x);
    SampleKernels.Logits logits = new SampleKernels.Logits(values, rows, vocabulary);
    DeviceBuffer ids = empty(Element.I32, rows);
    DeviceBuffer errors = empty(Element.I32, rows);
    switch (v.name()) {
      case "v1" -> {
        draws(kernels, logits, x, allowed, seen, new SamplingOptions(0, 0, 1, 0, 1.3f, 5));
        draws(kernels, logits, x, allowed, seen, new SamplingOptions(1.5f, 0, 1, 0, 1, 6));
        draws(kernels, logits, x, allowed, seen, new SamplingOptions(2, 90, .9, .02, 1.3f, 7));
      }
      case "argmax" -> {
        kernels.argmax(logits, put(words(allowed, 1)), ids, errors);
        SamplingOptions greedy = new SamplingOptions(0, 0, 1, 0, 1, 0);
        compare("id", ids, row -> choose(x, row, vocabulary, allowed, new BitSet(), greedy));
        compare("error", errors, row -> 0);
      }
      default -> {
        for (boolean log : new boolean[] {false, true}) {
          DeviceBuffer y = empty(F32, x.length);
          kernels.softmax(logits, y, 0.7f, log);
          double[] lse = logSums(x, rows, 0.7f);
          compare(
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
            empty(Element.I32, rows),
            empty(F32, rows),
            empty(Element.I32, rows),
            empty(Element.I32, rows));
    DeviceBuffer seenWords = put(words(seen, rows));
    kernels.sample(
        logits,
        put(words(allowed, 1)),
        seenWords,
        put(0, 1, 2), // samples
        put(10, 11, 12), // positions
        options,
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
    compare("id", chosen.ids(), ids);
    compare("logprob", chosen.logprobs(), r -> x[r * n + ids[r]] - lse[r]);
    compare("rank", chosen.ranks(), ranks);
    compare("error", chosen.errors(), r -> 0);
    compare("seen", seenWords, seenNow);
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

  private void step(Variant v, Element element) {
    DeviceBuffer position = put(40, 50, 60);
    DeviceBuffer place = put(70, 80, 90);
    DeviceBuffer keys = put(41, 51, 61);
    DeviceBuffer segments = empty(Element.I32, 12);
    DeviceBuffer result = empty(Element.I32, 12);
    float[] logprobs = {-1, -2, -3};
    new StepKernels(gpu)
        .advance(
            new SampleKernels.Chosen(put(7, 8, 9), put(F32, logprobs), put(1, 2, 3), put(0, 1, 2)),
            new StepKernels.Rows(put(4, 5, 6), position, place, keys, segments),
            result,
            3);
    compare("position", position, 41, 51, 61);
    compare("place", place, 71, 81, 91);
    compare("keys", keys, 42, 52, 62);
    compare("segments", segments, 0, 1, 4, 41, 1, 1, 5, 51, 2, 1, 6, 61);
    int[] bits = new int[3];
    Arrays.setAll(bits, r -> Float.floatToRawIntBits(logprobs[r]));
    compare("result", result, 7, 0, 1, bits[0], 8, 1, 2, bits[1], 9, 2, 3, bits[2]);
  }

  /** Frees what the test allocated. */
  @Override
  public void close() {
    buffers.forEach(DeviceBuffer::close);
  }
}
