package dev.loupe.kernels;

import static dev.loupe.kernels.Comparison.F32;
import static dev.loupe.kernels.Comparison.FLOATS;
import static dev.loupe.kernels.Comparison.nearest;

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

  private final Comparison c;

  private SelfTest(Comparison c) {
    this.c = c;
  }

  /** The families, in the order of the {@link KernelCatalogue}. */
  public static List<String> families() {
    return KernelCatalogue.all().stream().map(Variant::family).distinct().toList();
  }

  /** Tests one family; a failure of the GPU is a finding too. */
  public static Finding of(Gpu gpu, String family) {
    try (Comparison c = new Comparison(gpu)) {
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
    try (Comparison c = new Comparison(gpu)) {
      c.one(variant, element, new SelfTest(c).test(variant.family()));
      return c.finding(variant.family());
    }
  }

  private Comparison.Case test(String family) {
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
      case "graph" -> new GraphSelfTest(c)::replay;
      case "cublas" -> linear::cublas;
      default -> throw new IllegalArgumentException("no self-test of " + family);
    };
  }

  private void weights(Variant v, Element element) {
    int in = 70; // a group of 64 and a short one; a chunk each
    int outputs = 33;
    WeightKernels kernels = new WeightKernels(c.gpu());
    float[] w = c.floats(element, in * outputs); // [outputs, in]
    float[] checkpoint = new float[w.length]; // [in, outputs]
    for (int i = 0; i < w.length; i++) {
      checkpoint[i % in * outputs + i / in] = w[i];
    }
    DeviceBuffer chunks = c.put(element, checkpoint);
    DeviceBuffer second = c.put(element, Arrays.copyOfRange(checkpoint, 64 * outputs, w.length));
    Int8Weights q = Int8Weights.quantise(w, in, outputs);
    switch (v.name().replace("v0_", "")) {
      case "repack" -> {
        for (Element to : FLOATS) {
          LinearMap map = new LinearMap(c.empty(to, w.length), null, null, in, outputs);
          kernels.repack(chunks, 0, 64, map);
          kernels.repack(second, 64, in - 64, map);
          c.compare("W " + to.suffix(), map.weight(), 0, i -> nearest(to, w[i]));
        }
      }
      case "quantise" -> {
        LinearMap map = int8(in, outputs);
        kernels.quantise(chunks, 0, 64, map);
        kernels.quantise(second, 64, in - 64, map);
        compareInt8("", map, q);
        LinearMap table = int8(in, outputs);
        kernels.quantiseTable(c.put(element, w), 0, outputs, table);
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
    int width = 40;
    int[] ids = {6, 0, 3, 3, 5};
    int[] positions = {0, 4, 2, 3, 1};
    float[] wte = c.floats(element, 7 * width);
    float[] wpe = c.floats(element, 5 * width);
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
    float[] x = c.floats(element, rows * width);
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
    LayerNormKernels kernels = new LayerNormKernels(c.gpu());
    for (Element to : element == F32 ? FLOATS : List.of(element)) {
      DeviceBuffer y = c.empty(to, x.length);
      kernels.normalize(
          v, c.put(element, x), c.put(F32, gamma), c.put(F32, beta), y, rows, width, 1e-5f);
      c.compare(
          "y " + to.suffix(),
          y,
          i ->
              (x[i] - mean[i / width]) / deviation[i / width] * gamma[i % width] + beta[i % width]);
    }
  }

  private void pointwise(Variant v, Element element) {
    int n = 1003;
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
        for (Activation f : Activation.values()) {
          DeviceBuffer y = c.empty(element, n);
          kernels.activate(f, c.put(element, x), y, n);
          c.compare(f.name().toLowerCase(Locale.ROOT), y, i -> f.of(x[i]));
        }
      }
      default -> {
        for (Element to : FLOATS) {
          DeviceBuffer y = c.empty(to, n);
          kernels.convert(c.put(element, x), y, n);
          c.compare("to " + to.suffix(), y, 0, i -> nearest(to, x[i]));
        }
      }
    }
  }

  private void step(Variant v, Element element) {
    DeviceBuffer position = c.put(40, 50, 60);
    DeviceBuffer place = c.put(70, 80, 90);
    DeviceBuffer keys = c.put(41, 51, 61);
    DeviceBuffer segments = c.empty(Element.I32, 12);
    DeviceBuffer result = c.empty(Element.I32, 12);
    float[] logprobs = {-1, -2, -3};
    new StepKernels(c.gpu())
        .advance(
            new SampleKernels.Chosen(
                c.put(7, 8, 9), c.put(F32, logprobs), c.put(1, 2, 3), c.put(0, 1, 2)),
            new StepKernels.Rows(c.put(4, 5, 6), position, place, keys, segments),
            result,
            3);
    c.compare("position", position, 41, 51, 61);
    c.compare("place", place, 71, 81, 91);
    c.compare("keys", keys, 42, 52, 62);
    c.compare("segments", segments, 0, 1, 4, 41, 1, 1, 5, 51, 2, 1, 6, 61);
    int[] bits = new int[3];
    Arrays.setAll(bits, r -> Float.floatToRawIntBits(logprobs[r]));
    c.compare("result", result, 7, 0, 1, bits[0], 8, 1, 2, bits[1], 9, 2, 3, bits[2]);
  }
}
