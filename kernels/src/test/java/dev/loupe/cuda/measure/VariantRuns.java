package dev.loupe.cuda.measure;

import dev.loupe.cuda.BufferCheck;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.Launch;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.KernelChoice;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.kernels.CublasLinear;
import dev.loupe.cuda.kernels.EmbeddingKernels;
import dev.loupe.cuda.kernels.GemvKernels;
import dev.loupe.cuda.kernels.Int8Weights;
import dev.loupe.cuda.kernels.KernelActivation;
import dev.loupe.cuda.kernels.LayerNormKernels;
import dev.loupe.cuda.kernels.LinearArguments;
import dev.loupe.cuda.kernels.LinearCall;
import dev.loupe.cuda.kernels.LinearEpilogue;
import dev.loupe.cuda.kernels.LinearKernels;
import dev.loupe.cuda.kernels.LinearMap;
import dev.loupe.cuda.kernels.PointwiseKernels;
import dev.loupe.cuda.kernels.SampleKernels;
import dev.loupe.cuda.kernels.SampleOptions;
import dev.loupe.cuda.kernels.StepKernels;
import dev.loupe.cuda.kernels.WeightKernels;
import java.lang.foreign.MemorySegment;
import java.util.Locale;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * One launch of each variant of the catalogue on given shapes, to be counted or timed. Closing it
 * frees all that the launches use.
 */
final class VariantRuns extends RunBuffers {
  /**
   * @param rows R of a prompt's pass
   * @param width C
   * @param vocabulary V
   * @param linear map of many rows, and of what follows it or makes its weights
   * @param gemv map of one row
   * @param heads H
   * @param headSize D
   * @param context T of a prompt's attention
   * @param mapRows last rows of it whose maps are made
   * @param keys that a row of decoding attends to
   */
  record Shapes(
      int rows,
      int width,
      int vocabulary,
      InOut linear,
      InOut gemv,
      int heads,
      int headSize,
      int context,
      int mapRows,
      int keys) {
    Shapes linear(InOut map) {
      return new Shapes(
          rows, width, vocabulary, map, gemv, heads, headSize, context, mapRows, keys);
    }

    Shapes gemv(InOut map) {
      return new Shapes(
          rows, width, vocabulary, linear, map, heads, headSize, context, mapRows, keys);
    }

    /** What the variants of a family run on, for people. */
    String of(String family) {
      String attention =
          "%s, T = %d, D = %d, causal".formatted(count(heads, "head"), context, headSize);
      return switch (family) {
        case "weights" ->
            "%d rows of %d, to f16 or int8 and back".formatted(linear.out(), linear.in());
        case "embedding", "layernorm" -> "%d rows of %d".formatted(rows, width);
        case "linear" -> "%d rows, %s".formatted(rows, linear);
        case "gemv" -> "1 row, " + gemv;
        case "epilogue" -> "%d rows of %d; bias and gelu, to f16".formatted(rows, linear.out());
        case "attention" -> attention;
        case "attention_decode" ->
            "1 row of %d keys, %s, D = %d".formatted(keys, count(heads, "head"), headSize);
        case "attention_map" ->
            "the last %d rows of T = %d as f32, %s, D = %d, causal"
                .formatted(mapRows, context, count(heads, "head"), headSize);
        case "attention_stats" ->
            "the last %d rows of T = %d, %s, D = %d, causal, the %d largest"
                .formatted(mapRows, context, count(heads, "head"), headSize, TOP);
        case "pointwise" -> String.format(Locale.ROOT, "%,d elements; gelu; to f32", rows * width);
        case "sample" ->
            String.format(
                Locale.ROOT,
                "1 row of %,d logits; temperature 0.8, top-k 50, top-p 0.95",
                vocabulary);
        case "step" -> STEP_ROWS + " rows";
        default -> throw new IllegalArgumentException("no shape to run " + family + " on");
      };
    }

    private static String count(int n, String what) {
      return n + " " + what + (n == 1 ? "" : "s");
    }
  }

  /** Widths of a linear map. */
  record InOut(int in, int out) {
    @Override
    public String toString() {
      return in + " to " + out;
    }
  }

  /**
   * A launch.
   *
   * @param leastRead bytes of all inputs
   * @param leastWritten bytes of all outputs
   */
  record Run(Variant variant, Element element, long leastRead, long leastWritten, Runnable work) {}

  private static final int STEP_ROWS = 8;
  static final int TOP = 4;

  private final Shapes shapes;
  private final AttentionRuns attention;

  VariantRuns(Gpu gpu, Shapes shapes) {
    super(gpu);
    this.shapes = shapes;
    this.attention = new AttentionRuns(this, shapes);
  }

  /**
   * Allocates and fills what a variant needs.
   *
   * @param e one of the variant's elements: that of inputs, weights and outputs where the family
   *     leaves a choice
   */
  Run of(Variant v, Element e) {
    KernelChoice choice = KernelChoice.preferring(v);
    gpu.use(choice);
    Run run = ready(v, e);
    Runnable work =
        () -> {
          gpu.use(choice);
          run.work().run();
        };
    return new Run(v, e, run.leastRead(), run.leastWritten(), work);
  }

  private Run ready(Variant v, Element e) {
    return switch (v.family()) {
      case "weights" -> weights(v, e);
      case "embedding" -> embedding(v, e);
      case "layernorm" -> layerNorm(v, e);
      case "linear" -> linear(v, e);
      case "gemv" -> gemv(v, e);
      case "epilogue" -> epilogue(v, e);
      case "attention" -> attention.attention(v, e);
      case "attention_decode" -> attention.decode(v, e);
      case "attention_map" -> attention.map(v, e);
      case "attention_stats" -> attention.statistics(v, e);
      case "pointwise" -> pointwise(v, e);
      case "sample" -> sample(v, e);
      case "step" -> step(v, e);
      default -> throw new IllegalStateException("no shape to run " + v.family() + " on");
    };
  }

  private Run weights(Variant v, Element e) {
    int in = shapes.linear().in();
    int out = shapes.linear().out();
    WeightKernels kernels = new WeightKernels(gpu);
    DeviceBuffer chunk = floats(e, in, out); // as the checkpoint has it
    LinearMap whole = new LinearMap(empty(e, out, in), null, null, in, out);
    LinearMap bytes = bytesMap(new InOut(in, out), null);
    long quantised = bytes.weight().bytes() + scales(bytes).bytes();
    return switch (v.name().replace("v0_", "")) {
      case "repack" ->
          new Run(v, e, chunk.bytes(), chunk.bytes(), () -> kernels.repack(chunk, 0, in, whole));
      case "quantise" ->
          new Run(v, e, chunk.bytes(), quantised, () -> kernels.quantise(chunk, 0, in, bytes));
      default ->
          new Run(v, e, quantised, chunk.bytes(), () -> kernels.dequantise(bytes, whole.weight()));
    };
  }

  /** Launched as {@link CublasLinear} does, without the product before it. */
  private Run epilogue(Variant v, Element e) {
    int rows = shapes.rows();
    int width = shapes.linear().out();
    DeviceBuffer sums = floats(e, rows, width);
    DeviceBuffer bias = floats(e, width);
    DeviceBuffer out = empty(Element.F16, rows, width);
    int in = 8; // of the product, which is not made
    LinearMap map = new LinearMap(floats(Element.F16, width, in), null, bias, in, width);
    LinearArguments arguments =
        new LinearArguments(
            new BufferCheck("epilogue", gpu),
            map,
            floats(Element.F16, rows, in),
            new LinearEpilogue.Output(out, KernelActivation.GELU_NEW));
    Launch launch = CublasLinear.epilogue(v, arguments).set(0, sums);
    return new Run(
        v,
        e,
        sums.bytes() + bias.bytes(),
        out.bytes(),
        () -> CublasLinear.finish(v, launch, rows, width));
  }

  private Run step(Variant v, Element e) {
    int rows = STEP_ROWS;
    DeviceBuffer floats = floats(Element.F32, rows);
    DeviceBuffer result = empty(e, rows, StepKernels.RESULT_INTS);
    StepKernels kernels = new StepKernels(gpu);
    SampleKernels.Chosen chosen =
        new SampleKernels.Chosen(list(rows), floats, list(rows), list(rows));
    StepKernels.Rows at =
        new StepKernels.Rows(
            list(rows), list(rows), list(rows), list(rows), list(4 * rows), list(rows));
    return new Run(
        v,
        e,
        8L * floats.bytes(),
        4L * floats.bytes() + 2 * result.bytes(),
        () -> kernels.advance(chosen, at, result, 1, rows));
  }

  private DeviceBuffer list(int length) {
    return ints(new int[length]);
  }

  private Run embedding(Variant v, Element e) {
    int rows = shapes.rows();
    int width = shapes.width();
    DeviceBuffer x = empty(e, rows, width);
    EmbeddingKernels kernels = new EmbeddingKernels(gpu);
    DeviceBuffer ids = ints(random.ints(rows, 0, shapes.vocabulary()).toArray());
    DeviceBuffer positions = ints(random.ints(rows, 0, rows).sorted().toArray());
    DeviceBuffer wte = floats(e, shapes.vocabulary(), width);
    DeviceBuffer wpe = floats(e, rows, width);
    return new Run(
        v,
        e,
        2L * x.bytes() + 2L * rows * Integer.BYTES,
        x.bytes(),
        () -> kernels.embed(ids, positions, wte, wpe, x, rows, shapes.vocabulary(), rows, width));
  }

  private Run layerNorm(Variant v, Element e) {
    int rows = shapes.rows();
    int width = shapes.width();
    LayerNormKernels kernels = new LayerNormKernels(gpu);
    DeviceBuffer x = floats(e, rows, width);
    DeviceBuffer gamma = floats(Element.F32, width);
    DeviceBuffer beta = floats(Element.F32, width);
    DeviceBuffer y = empty(e, rows, width);
    return new Run(
        v,
        e,
        x.bytes() + gamma.bytes() + beta.bytes(),
        y.bytes(),
        () -> kernels.normalize(v, x, gamma, beta, y, rows, width, 1e-5f));
  }

  private Run linear(Variant v, Element e) {
    int rows = shapes.rows();
    DeviceBuffer x = floats(e, rows, shapes.linear().in());
    LinearMap map = linearMap(e, shapes.linear());
    DeviceBuffer y = empty(e, rows, map.outputs());
    LinearCall call =
        new LinearKernels(gpu)
            .prepare(v, map, x, new LinearEpilogue.Output(y, KernelActivation.NONE));
    return new Run(v, e, x.bytes() + bytes(map), y.bytes(), () -> call.run(rows));
  }

  private Run gemv(Variant v, Element e) {
    DeviceBuffer x = floats(Element.F32, shapes.gemv().in());
    LinearMap map = linearMap(e, shapes.gemv());
    DeviceBuffer y = empty(Element.F32, map.outputs());
    LinearCall call =
        new GemvKernels(gpu)
            .prepare(v, map, x, new LinearEpilogue.Output(y, KernelActivation.NONE));
    return new Run(v, e, x.bytes() + bytes(map), y.bytes(), () -> call.run(1));
  }

  private LinearMap linearMap(Element e, InOut map) {
    DeviceBuffer bias = floats(Element.F32, map.out());
    return e == Element.I8
        ? bytesMap(map, bias)
        : new LinearMap(floats(e, map.out(), map.in()), null, bias, map.in(), map.out());
  }

  /** Weights and scales of any size: nobody looks at the sums. */
  private LinearMap bytesMap(InOut map, @Nullable DeviceBuffer bias) {
    DeviceBuffer weight = empty(Element.I8, map.out(), map.in());
    byte[] bytes = new byte[Math.multiplyExact(map.out(), map.in())];
    random.nextBytes(bytes);
    weight.upload(MemorySegment.ofArray(bytes));
    DeviceBuffer scales = floats(Element.F32, map.out(), Math.ceilDiv(map.in(), Int8Weights.GROUP));
    return new LinearMap(weight, scales, bias, map.in(), map.out());
  }

  private static DeviceBuffer scales(LinearMap map) {
    return Objects.requireNonNull(map.scales());
  }

  private static long bytes(LinearMap map) {
    long scales = map.scales() == null ? 0 : scales(map).bytes();
    return map.weight().bytes() + scales + 4L * map.outputs();
  }

  private Run pointwise(Variant v, Element e) {
    int n = shapes.rows() * shapes.width();
    PointwiseKernels kernels = new PointwiseKernels(gpu);
    DeviceBuffer x = floats(e, n);
    DeviceBuffer y = floats(e, n);
    DeviceBuffer wide = empty(Element.F32, n);
    return switch (v.name().replace("v0_", "")) {
      case "residual" ->
          new Run(v, e, 2 * x.bytes(), x.bytes(), () -> kernels.addResidual(x, y, n));
      case "activate" ->
          new Run(
              v,
              e,
              x.bytes(),
              x.bytes(),
              () -> kernels.activate(KernelActivation.GELU_NEW, x, y, n));
      default -> new Run(v, e, x.bytes(), wide.bytes(), () -> kernels.convert(x, wide, n));
    };
  }

  private Run sample(Variant v, Element e) {
    DeviceBuffer values = floats(e, shapes.vocabulary());
    SampleKernels.Logits logits = new SampleKernels.Logits(values, 1, shapes.vocabulary());
    SampleKernels kernels = new SampleKernels(gpu);
    DeviceBuffer ids = empty(Element.I32, 1);
    DeviceBuffer errors = empty(Element.I32, 1);
    DeviceBuffer y = empty(e, shapes.vocabulary());
    long read = values.bytes();
    return switch (v.name()) {
      case "argmax" -> new Run(v, e, read, 8, () -> kernels.argmax(logits, null, ids, errors));
      case "softmax" ->
          new Run(v, e, read, y.bytes(), () -> kernels.softmax(logits, y, 0.8f, false));
      case "logprob" -> {
        DeviceBuffer of = ints(7);
        DeviceBuffer logprobs = empty(Element.F32, 1);
        yield new Run(v, e, read + 4, 4, () -> kernels.logprobs(logits, of, logprobs));
      }
      default -> {
        SampleKernels.Chosen chosen =
            new SampleKernels.Chosen(ids, empty(Element.F32, 1), empty(Element.I32, 1), errors);
        DeviceBuffer options = ints(new SampleOptions(0.8f, 50, 0.95, 0, 1, 7).words());
        DeviceBuffer samples = ints(0);
        DeviceBuffer positions = ints(0);
        yield new Run(
            v,
            e,
            read + 8,
            16,
            () -> kernels.sample(logits, null, null, samples, positions, options, chosen));
      }
    };
  }
}
