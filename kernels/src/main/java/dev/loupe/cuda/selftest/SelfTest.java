package dev.loupe.cuda.selftest;

import static dev.loupe.cuda.selftest.SelfTestInputs.F32;
import static dev.loupe.cuda.selftest.SelfTestInputs.FLOATS;
import static dev.loupe.cuda.selftest.SelfTestInputs.nearest;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.kernels.EmbeddingKernels;
import dev.loupe.cuda.kernels.Int8Weights;
import dev.loupe.cuda.kernels.KernelActivation;
import dev.loupe.cuda.kernels.KernelCatalogue;
import dev.loupe.cuda.kernels.LayerNormKernels;
import dev.loupe.cuda.kernels.LinearMap;
import dev.loupe.cuda.kernels.PointwiseKernels;
import dev.loupe.cuda.kernels.SampleKernels;
import dev.loupe.cuda.kernels.StepKernels;
import dev.loupe.cuda.kernels.WeightKernels;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;

/**
 * Runs each kernel family on a GPU, every variant in every element that the card supports, and
 * compares with plain loops in double precision. Shapes are small and inputs always the same, so
 * that users can run it: it tells a card, a driver or an image that computes wrongly, and leaves
 * awkward shapes to the tests.
 */
public final class SelfTest {
  /**
   * What came of a family.
   *
   * @param results how many were looked at
   * @param wrong those of them that are off
   * @param text one line for people
   */
  public record Finding(String family, int results, int wrong, String text) {
    /** True if all results are right. */
    public boolean isRight() {
      return results > 0 && wrong == 0;
    }
  }

  private final SelfTestInputs c;

  private SelfTest(SelfTestInputs c) {
    this.c = c;
  }

  /** The families, in the order of the {@link KernelCatalogue}. */
  public static List<String> families() {
    return KernelCatalogue.all().stream().map(Variant::family).distinct().toList();
  }

  /** Tests one family; a failure of the GPU is a finding too. */
  public static Finding of(Gpu gpu, String family) {
    try (SelfTestInputs c = new SelfTestInputs(gpu)) {
      c.each(family, new SelfTest(c).test(family));
      return c.finding(family);
    } catch (GpuException e) {
      return new Finding(family, 0, 0, "fails: " + e.getMessage());
    }
  }

  /**
   * Tests one variant in one element.
   *
   * @throws GpuException if the GPU fails
   */
  static Finding of(Gpu gpu, Variant variant, Element element) {
    try (SelfTestInputs c = new SelfTestInputs(gpu)) {
      try {
        c.one(variant, element, new SelfTest(c).test(variant.family()));
      } catch (GpuException e) {
        if (!c.isWrong()) { // what was wrong before says more
          throw e;
        }
      }
      return c.finding(variant.family());
    }
  }

  private SelfTestInputs.Case test(String family) {
    LinearSelfTest linear = new LinearSelfTest(c);
    AttentionSelfTest attention = new AttentionSelfTest(c);
    return switch (family) {
      case "weights" -> this::weights;
      case "embedding" -> this::embedding;
      case "layernorm" -> this::layerNorm;
      case "linear" -> linear::linear;
      case "gemv" -> linear::gemv;
      case "epilogue" -> linear::epilogue;
      case "attention" -> attention::attention;
      case "attention_decode" -> attention::decodeAttention;
      case "attention_map" -> attention::attentionMap;
      case "attention_stats" -> attention::attentionStatistics;
      case "pointwise" -> this::pointwise;
      case "sample" -> new SampleSelfTest(c)::sample;
      case "step" -> this::step;
      case "graph" -> new GraphSelfTest(c)::graph;
      case "cublas" -> linear::cublas;
      default -> throw new IllegalArgumentException("no self-test of " + family);
    };
  }

  private void weights(Variant v, Element element) {
    weights(v, element, 200, 70, 128); // groups of 64 and a short one
    weights(v, element, 75, 33, 64); // rows that are no multiple of 16 bytes
  }

  /** W [outputs, in], in two chunks, of which the first has {@code first} rows. */
  private void weights(Variant v, Element element, int in, int outputs, int first) {
    WeightKernels kernels = new WeightKernels(c.gpu());
    float[] w = c.floats(element, in * outputs); // [outputs, in]
    Arrays.fill(w, 0, Int8Weights.GROUP, 0); // a group without a scale
    float[] checkpoint = new float[w.length]; // [in, outputs]
    for (int i = 0; i < w.length; i++) {
      checkpoint[i % in * outputs + i / in] = w[i];
    }
    DeviceBuffer chunk = c.put(element, Arrays.copyOf(checkpoint, first * outputs));
    DeviceBuffer second = c.put(element, Arrays.copyOfRange(checkpoint, first * outputs, w.length));
    Int8Weights q = Int8Weights.quantise(w, in, outputs);
    switch (v.name().replace("v0_", "")) {
      case "repack" -> {
        for (Element to : FLOATS) {
          LinearMap map = new LinearMap(c.empty(to, w.length), null, null, in, outputs);
          kernels.repack(chunk, 0, first, map);
          kernels.repack(second, first, in - first, map);
          c.compare("W " + to.suffix(), map.weight(), 0, i -> nearest(to, w[i]));
        }
      }
      case "quantise" -> {
        LinearMap map = int8(in, outputs);
        kernels.quantise(chunk, 0, first, map);
        kernels.quantise(second, first, in - first, map);
        compareInt8("", map, q);
        LinearMap table = int8(in, outputs);
        int rows = outputs / 2;
        kernels.quantiseTable(c.put(element, Arrays.copyOf(w, rows * in)), 0, rows, table);
        kernels.quantiseTable(
            c.put(element, Arrays.copyOfRange(w, rows * in, w.length)),
            rows,
            outputs - rows,
            table);
        compareInt8("table's ", table, q);
      }
      default -> {
        DeviceBuffer out = c.empty(element, w.length);
        kernels.dequantise(c.own(q.upload(c.gpu(), null)), out);
        c.compare(
            "W", out, 0, i -> nearest(element, q.value(i / in, i % in) * q.scale(i / in, i % in)));
      }
    }
  }

  private LinearMap int8(int in, int outputs) {
    int groups = Math.ceilDiv(in, Int8Weights.GROUP);
    DeviceBuffer weight = c.empty(Element.I8, (long) in * outputs);
    return new LinearMap(weight, c.empty(F32, (long) groups * outputs), null, in, outputs);
  }

  private void compareInt8(String of, LinearMap map, Int8Weights q) {
    c.compare(of + "bytes", map.weight(), i -> q.values()[i]);
    DeviceBuffer scales = map.scales();
    if (scales != null) {
      c.compare(of + "scales", scales, 0, i -> q.scales()[i]);
    }
  }

  private void embedding(Variant v, Element element) {
    for (int width : new int[] {40, 37, 2056}) { // 16 bytes a load, one by one, more than a block
      embedding(element, width);
    }
  }

  /** Rows of tables of 7 and 5 rows, and of ids and positions that they do not have. */
  private void embedding(Element element, int width) {
    int[] ids = {6, 0, 3, 3, 5, -1, 7, 1, 1};
    int[] positions = {0, 4, 2, 3, 1, 0, 0, -1, 5};
    // there is a row more of each, which shall not be taken
    float[] wte = c.floats(element, 8 * width);
    float[] wpe = c.floats(element, 6 * width);
    EmbeddingKernels kernels = new EmbeddingKernels(c.gpu());
    for (Element to : element == F32 ? List.of(F32) : List.of(F32, element)) {
      DeviceBuffer x = c.empty(to, (long) ids.length * width);
      kernels.embed(
          c.put(ids),
          c.put(positions),
          c.put(element, wte),
          c.put(element, wpe),
          x,
          ids.length,
          7,
          5,
          width);
      c.compare(
          "x %s of %d".formatted(to.suffix(), width),
          x,
          i ->
              i / width < 5
                  ? wte[ids[i / width] * width + i % width]
                      + wpe[positions[i / width] * width + i % width]
                  : Double.NaN);
    }
  }

  private void layerNorm(Variant v, Element element) {
    for (int threads : new int[] {0, 128}) { // of v3 a row a block, and four
      LayerNormKernels kernels = new LayerNormKernels(c.gpu(), threads);
      layerNorm(kernels, v, element, 131, 40);
      layerNorm(kernels, v, element, 5, 1032);
      if (kernels.reason(v, 37).isEmpty()) {
        layerNorm(kernels, v, element, 3, 37);
      }
    }
  }

  /** Rows around 0, one around 30, and one of equal numbers. */
  private void layerNorm(
      LayerNormKernels kernels, Variant v, Element element, int rows, int width) {
    float[] x = c.floats(element, rows * width);
    for (int i = 0; i < width; i++) {
      x[i] = nearest(element, 30 + x[i]);
      x[width + i] = 0.5f;
    }
    float[] gamma = c.floats(F32, width);
    float[] beta = c.floats(F32, width);
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
    for (Element to : element == F32 ? FLOATS : List.of(element)) {
      DeviceBuffer y = c.empty(to, x.length);
      kernels.normalize(
          v, c.put(element, x), c.put(F32, gamma), c.put(F32, beta), y, rows, width, 1e-5f);
      c.compare(
          "y %s of %d".formatted(to.suffix(), width),
          y,
          i ->
              (x[i] - mean[i / width]) / deviation[i / width] * gamma[i % width] + beta[i % width]);
    }
  }

  /** Halfway between two of f16, and of bf16, above an even and an odd one; too large; tiny. */
  private static final float[] ROUNDED = {
    1 + 0x1p-11f, 1 + 0x3p-11f, 1 + 0x1p-8f, -1 - 0x3p-8f, 65520, -65519, 0x1.8p-24f, Float.NaN
  };

  private void pointwise(Variant v, Element element) {
    int n = 5003; // three blocks, the last not full
    PointwiseKernels kernels = new PointwiseKernels(c.gpu());
    float[] x = c.floats(element, n);
    switch (v.name().replace("v0_", "")) {
      case "residual" -> {
        for (Element other : element == F32 ? FLOATS : List.of(element)) {
          float[] y = c.floats(other, n);
          DeviceBuffer sum = c.put(element, x);
          kernels.addResidual(sum, c.put(other, y), n);
          c.compare("x + y in " + other.suffix(), sum, i -> x[i] + y[i]);
        }
      }
      case "activate" -> {
        for (int i = 0; i < n; i += 2) {
          x[i] = nearest(element, 12 * x[i]);
        }
        x[3] = Float.NaN;
        for (KernelActivation f : KernelActivation.values()) {
          DeviceBuffer y = c.empty(element, n);
          kernels.activate(f, c.put(element, x), y, n);
          c.compare(f.name().toLowerCase(Locale.ROOT), y, i -> f.of(x[i]));
        }
      }
      default -> {
        for (int i = 0; i < ROUNDED.length; i++) {
          x[i * 611] = nearest(element, ROUNDED[i]);
        }
        for (Element to : FLOATS) {
          DeviceBuffer y = c.empty(to, n);
          kernels.convert(c.put(element, x), y, n);
          c.compare("to " + to.suffix(), y, 0, i -> nearest(to, x[i]));
        }
      }
    }
  }

  private void step(Variant v, Element element) {
    int rows = 131; // more than a block
    int[] at = new int[rows];
    float[] logprobs = new float[rows];
    Arrays.setAll(at, r -> 10 * r);
    for (int r = 0; r < rows; r++) {
      logprobs[r] = -r;
    }
    DeviceBuffer position = c.put(plus(at, 1));
    DeviceBuffer place = c.put(plus(at, 2));
    DeviceBuffer keys = c.put(plus(at, 9));
    DeviceBuffer segments = c.empty(Element.I32, 4L * rows);
    int turns = 3;
    int[] turn = new int[rows];
    Arrays.setAll(turn, r -> r % turns);
    DeviceBuffer results = c.empty(Element.I32, 4L * turns * rows);
    results.fill((byte) 0);
    DeviceBuffer turnOf = c.put(turn);
    new StepKernels(c.gpu())
        .advance(
            new SampleKernels.Chosen(
                c.put(plus(at, 3)), c.put(F32, logprobs), c.put(plus(at, 4)), c.put(plus(at, 5))),
            new StepKernels.Rows(c.put(plus(at, 6)), position, place, keys, segments, turnOf),
            results,
            turns,
            rows);
    c.compare("position", position, plus(at, 2));
    c.compare("place", place, plus(at, 3));
    c.compare("keys", keys, plus(at, 3));
    int[] segment = new int[4 * rows];
    int[] row = new int[4 * turns * rows];
    for (int r = 0; r < rows; r++) {
      int[] moved = {r, 1, at[r] + 6, at[r] + 2};
      int[] said = {at[r] + 3, at[r] + 5, at[r] + 4, Float.floatToRawIntBits(logprobs[r])};
      System.arraycopy(moved, 0, segment, 4 * r, 4);
      System.arraycopy(said, 0, row, 4 * (turn[r] * rows + r), 4);
      turn[r] = (turn[r] + 1) % turns;
    }
    c.compare("segments", segments, segment);
    c.compare("turn", turnOf, turn);
    c.compare("results", results, row);
  }

  private static int[] plus(int[] values, int more) {
    return Arrays.stream(values).map(i -> i + more).toArray();
  }
}
