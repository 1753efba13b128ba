package dev.loupe.bench.kernel;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.KernelChoice;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.kernels.AttentionKernels;
import dev.loupe.cuda.kernels.AttentionMapKernels;
import dev.loupe.cuda.kernels.CacheShape;
import dev.loupe.cuda.kernels.CublasLinear;
import dev.loupe.cuda.kernels.DecodeAttention;
import dev.loupe.cuda.kernels.GemvKernels;
import dev.loupe.cuda.kernels.Int8Weights;
import dev.loupe.cuda.kernels.KernelActivation;
import dev.loupe.cuda.kernels.LayerNormKernels;
import dev.loupe.cuda.kernels.LinearCall;
import dev.loupe.cuda.kernels.LinearEpilogue;
import dev.loupe.cuda.kernels.LinearKernels;
import dev.loupe.cuda.kernels.LinearMap;
import dev.loupe.cuda.kernels.PointwiseKernels;
import dev.loupe.cuda.kernels.SampleKernels;
import dev.loupe.cuda.kernels.Segment;
import dev.loupe.cuda.kernels.Segments;
import dev.loupe.ops.Precision;
import java.util.List;
import java.util.stream.IntStream;

/** Brings a problem to the GPU as a variant wants it, and tells the run what to launch. */
final class CudaSetUp {
  private final CudaDevice device;
  private final Gpu gpu;
  private final Variant variant;
  private final int threads;
  private final Element element;
  private final Problem problem;
  private final Shape shape;
  private final CudaRun run;

  CudaSetUp(CudaDevice device, CudaCandidate candidate, Problem problem, CudaRun run) {
    this.device = device;
    this.gpu = device.gpu();
    this.variant = candidate.variant();
    this.threads = candidate.threads();
    this.element = candidate.element();
    this.problem = problem;
    this.shape = problem.shape();
    this.run = run;
  }

  void setUp() {
    gpu.use(KernelChoice.preferring(variant)); // where the family chooses for itself
    switch (shape.operation()) {
      case ATTENTION -> attention();
      case DECODE_ATTENTION -> decodeAttention();
      case MAP -> map();
      case LINEAR -> linear();
      case LAYERNORM -> layerNorm();
      case SOFTMAX -> softmax();
      case GELU -> gelu();
    }
  }

  private DeviceBuffer outputs(Element as) {
    return run.empty(as, problem.outputs());
  }

  /** Keys (part 1) or values (part 2) as a layer of the cache has them: [H, T, D]. */
  private DeviceBuffer cached(int part) {
    int tokens = shape.size("T");
    int d = shape.size("D");
    int c = shape.size("H") * d;
    float[] all = new float[tokens * c];
    for (int t = 0; t < tokens; t++) {
      for (int head = 0; head < c / d; head++) {
        System.arraycopy(
            problem.x(), (3 * t + part) * c + head * d, all, (head * tokens + t) * d, d);
      }
    }
    return run.put(element, all);
  }

  private Segments oneSegment() {
    Segments segments = run.keep(new Segments(gpu, 1), Segments::close);
    segments.set(List.of(new Segment(0, shape.size("T"), 0, 0)));
    return segments;
  }

  private void attention() {
    AttentionKernels kernels = attentionKernels();
    Segments segments = oneSegment();
    DeviceBuffer y = outputs(element);
    AttentionKernels.Buffers buffers = attentionBuffers(y);
    run.runs(y, true, () -> kernels.run(variant, segments, true, problem.scale(), buffers));
  }

  private AttentionKernels attentionKernels() {
    return run.keep(
        new AttentionKernels(gpu, CudaCandidate.cache(shape), element), AttentionKernels::close);
  }

  /**
   * @param y [T, H D]
   */
  private AttentionKernels.Buffers attentionBuffers(DeviceBuffer y) {
    return new AttentionKernels.Buffers(
        run.put(element, problem.x()),
        cached(1),
        cached(2),
        y,
        run.empty(Element.F32, (long) shape.size("T") * shape.size("H")));
  }

  private void decodeAttention() {
    int tokens = shape.size("T");
    CacheShape cache = CudaCandidate.cache(shape);
    DecodeAttention kernels =
        run.keep(new DecodeAttention(gpu, cache, element, element, 1), DecodeAttention::close);
    float[] last = new float[3 * cache.width()];
    System.arraycopy(problem.x(), (tokens - 1) * last.length, last, 0, last.length);
    DecodeAttention.Rows rows =
        new DecodeAttention.Rows(run.put(element, last), run.put(0), run.put(tokens), 1, tokens);
    DecodeAttention.Cache kv = new DecodeAttention.Cache(cached(1), cached(2));
    DeviceBuffer y = outputs(element);
    DeviceBuffer lse = run.empty(Element.F32, shape.size("H"));
    run.runs(y, true, () -> kernels.run(rows, kv, problem.scale(), y, lse));
  }

  /** The log-sum-exp comes from the attention kernel that a model would run. */
  private void map() {
    int tokens = shape.size("T");
    int heads = shape.size("H");
    AttentionKernels attention = attentionKernels();
    Segments segments = oneSegment();
    AttentionKernels.Buffers of =
        attentionBuffers(run.empty(element, (long) tokens * heads * shape.size("D")));
    attention.run(attention.variantFor(segments), segments, true, problem.scale(), of);
    AttentionMapKernels kernels =
        new AttentionMapKernels(gpu, CudaCandidate.cache(shape), element, element);
    AttentionMapKernels.Source source =
        new AttentionMapKernels.Source(
            of.qkv(), of.k(), of.lse(), segments.buffer(), 1, true, problem.scale());
    AttentionMapKernels.Selection all =
        new AttentionMapKernels.Selection(
            run.put(IntStream.range(0, heads).toArray()), heads, 0, tokens);
    AttentionMapKernels.Layout dense = new AttentionMapKernels.Layout.Dense(tokens);
    AttentionMapKernels.Cells cells = AttentionMapKernels.Cells.PROBABILITIES;
    DeviceBuffer p = outputs(Element.F32);
    run.runs(p, true, () -> kernels.map(variant, source, all, cells, dense, p));
  }

  private void linear() {
    int rows = shape.size("M");
    boolean gemv = variant.family().equals("gemv");
    Element activations = gemv ? Element.F32 : element;
    DeviceBuffer x = run.put(activations, problem.x());
    LinearMap map = linearMap();
    DeviceBuffer y = outputs(activations);
    LinearEpilogue.Output to = new LinearEpilogue.Output(y, KernelActivation.NONE);
    if (variant.family().equals(CudaCandidate.CUBLAS)) {
      CublasLinear cublas = run.keep(device.cublas(), CublasLinear::freeProducts);
      LinearCall call = cublas.prepare(map, x, to);
      run.runs(y, false, () -> call.run(rows));
    } else {
      LinearCall call =
          gemv
              ? new GemvKernels(gpu).prepare(variant, map, x, to)
              : new LinearKernels(gpu).prepare(variant, map, x, to);
      run.runs(y, true, () -> call.run(rows));
    }
  }

  /** The weight as kernels want it, [N, K]. */
  private LinearMap linearMap() {
    int in = shape.size("K");
    int out = shape.size("N");
    float[] w = new float[in * out];
    for (int k = 0; k < in; k++) {
      for (int n = 0; n < out; n++) {
        w[n * in + k] = problem.weight()[k * out + n];
      }
    }
    DeviceBuffer bias = run.put(Element.F32, problem.bias());
    if (problem.precision() != Precision.INT8) {
      return new LinearMap(run.put(element, w), null, bias, in, out);
    }
    LinearMap map = Int8Weights.quantise(w, in, out).upload(gpu, bias);
    run.keep(map.weight(), DeviceBuffer::close);
    DeviceBuffer scales = map.scales();
    if (scales != null) {
      run.keep(scales, DeviceBuffer::close);
    }
    return map;
  }

  private void layerNorm() {
    int rows = shape.size("R");
    int width = shape.size("C");
    LayerNormKernels kernels = new LayerNormKernels(gpu, threads);
    DeviceBuffer x = run.put(element, problem.x());
    DeviceBuffer gamma = run.put(Element.F32, problem.weight());
    DeviceBuffer beta = run.put(Element.F32, problem.bias());
    DeviceBuffer y = outputs(element);
    float epsilon = problem.epsilon();
    run.runs(y, true, () -> kernels.normalize(variant, x, gamma, beta, y, rows, width, epsilon));
  }

  private void softmax() {
    SampleKernels kernels = new SampleKernels(gpu, threads, Integer.MAX_VALUE);
    SampleKernels.Logits logits =
        new SampleKernels.Logits(run.put(element, problem.x()), shape.size("R"), shape.size("C"));
    DeviceBuffer y = outputs(element);
    run.runs(y, true, () -> kernels.softmax(logits, y, 1, false));
  }

  private void gelu() {
    PointwiseKernels kernels =
        threads == 0 ? new PointwiseKernels(gpu) : new PointwiseKernels(gpu, threads);
    DeviceBuffer x = run.put(element, problem.x());
    DeviceBuffer y = outputs(element);
    long n = problem.outputs();
    run.runs(
        y,
        true,
        () -> {
          gpu.use(KernelChoice.preferring(variant));
          kernels.activate(KernelActivation.GELU_NEW, x, y, n);
        });
  }
}
