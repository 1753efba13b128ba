package dev.loupe.kernels;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.function.Consumer;

/**
 * Runs every variant of the catalogue once on the counting emulator, and the kernels whose counts
 * are known, and prints a line of {@link Counts} for each. A program of its own, since a process
 * has one driver.
 */
final class CountingRun implements AutoCloseable {
  /** What the variants of a family were counted on; it shows in README.md. */
  static final Map<String, String> SHAPES =
      Map.ofEntries(
          Map.entry("weights", "256 rows of 256, to f16 or int8 and back"),
          Map.entry("embedding", "64 rows of 768"),
          Map.entry("layernorm", "64 rows of 768"),
          Map.entry("linear", "64 rows, 256 to 256"),
          Map.entry("gemv", "1 row, 768 to 768"),
          Map.entry("epilogue", "64 rows of 256; bias and gelu, to f16"),
          Map.entry("attention", "1 head, T = 256, D = 64, causal"),
          Map.entry("attention_decode", "1 row of 512 keys, 1 head, D = 64"),
          Map.entry("attention_map", "the last 64 rows of T = 256 as f32, 1 head, D = 64, causal"),
          Map.entry(
              "attention_stats",
              "the last 64 rows of T = 256, 1 head, D = 64, causal, the 4 largest"),
          Map.entry("pointwise", "49,152 elements; gelu; to f32"),
          Map.entry("sample", "1 row of 50,257 logits; temperature 0.8, top-k 50, top-p 0.95"),
          Map.entry("step", "8 rows"));

  /** Family of the kernels whose counts are known. */
  static final String SELF = "self";

  private static final byte[] EVERY_KERNEL = "// emulated".getBytes(StandardCharsets.US_ASCII);

  private final Gpu gpu = Gpu.open(0, (file, computeCapability, driver) -> EVERY_KERNEL);
  private final Random random = new Random(1);
  private final List<Runnable> open = new ArrayList<>();

  public static void main(String[] args) {
    try (CountingRun run = new CountingRun()) {
      Emulator.options(Emulator.Schedule.FORWARD, 0, true); // cp.async where the source has it
      System.out.println(Counts.compiler());
      run.self();
      for (Variant v : KernelCatalogue.all()) {
        run.count(v);
      }
    }
  }

  private void count(Variant v) {
    switch (v.family()) {
      case "weights" -> weights(v);
      case "embedding" -> embedding(v);
      case "layernorm" -> layerNorm(v);
      case "linear" -> linear(v);
      case "gemv" -> gemv(v);
      case "epilogue" -> epilogue(v);
      case "attention" -> attention(v);
      case "attention_decode" -> decode(v);
      case "attention_map" -> map(v);
      case "attention_stats" -> statistics(v);
      case "pointwise" -> pointwise(v);
      case "sample" -> sample(v);
      case "step" -> step(v);
      default -> throw new IllegalStateException("no shape to count " + v.family() + " on");
    }
  }

  private void weights(Variant v) {
    int width = 256;
    WeightKernels kernels = new WeightKernels(gpu);
    DeviceBuffer chunk = floats(Element.F16, width, width);
    LinearMap half = new LinearMap(empty(Element.F16, width, width), null, null, width, width);
    DeviceBuffer scales = floats(Element.F32, width, width / Int8Weights.GROUP);
    LinearMap bytes = new LinearMap(empty(Element.I8, width, width), scales, null, width, width);
    long quantised = bytes.weight().bytes() + scales.bytes();
    switch (v.name()) {
      case "repack" ->
          print(
              v,
              Element.F16,
              chunk.bytes(),
              chunk.bytes(),
              () -> kernels.repack(chunk, 0, width, half));
      case "quantise" ->
          print(
              v,
              Element.F16,
              chunk.bytes(),
              quantised,
              () -> kernels.quantise(chunk, 0, width, bytes));
      default ->
          print(
              v,
              Element.F16,
              quantised,
              chunk.bytes(),
              () -> kernels.dequantise(bytes, half.weight()));
    }
  }

  /** Launched as {@link CublasLinear} does, without the product before it. */
  private void epilogue(Variant v) {
    int rows = 64;
    int width = 256;
    DeviceBuffer sums = floats(Element.F32, rows, width);
    DeviceBuffer bias = floats(Element.F32, width);
    DeviceBuffer out = empty(Element.F16, rows, width);
    LinearMap map = new LinearMap(floats(Element.F16, width, width), null, bias, width, width);
    LinearArguments arguments =
        new LinearArguments(
            new BufferCheck("epilogue", gpu),
            map,
            floats(Element.F16, rows, width),
            new LinearEpilogue.Output(out, Activation.GELU_NEW));
    Launch launch =
        arguments
            .bindEpilogue(gpu.kernel("epilogue", v.kernel(Element.F32)))
            .set(0, sums)
            .set(3, rows);
    print(
        v,
        Element.F32,
        sums.bytes() + bias.bytes(),
        out.bytes(),
        () -> launch.run(rows * width / 4 / 256, 1, 1, 256, 1, 0));
  }

  private void step(Variant v) {
    int rows = 8;
    DeviceBuffer floats = floats(Element.F32, rows);
    DeviceBuffer result = empty(Element.I32, rows, StepKernels.RESULT_INTS);
    StepKernels kernels = new StepKernels(gpu);
    SampleKernels.Chosen chosen =
        new SampleKernels.Chosen(list(rows), floats, list(rows), list(rows));
    StepKernels.Rows at =
        new StepKernels.Rows(list(rows), list(rows), list(rows), list(rows), list(4 * rows));
    print(
        v,
        Element.I32,
        7L * floats.bytes(),
        3L * floats.bytes() + 2 * result.bytes(),
        () -> kernels.advance(chosen, at, result, rows));
  }

  private DeviceBuffer list(int length) {
    return ints(new int[length]);
  }

  private void embedding(Variant v) {
    int rows = 64;
    int width = 768;
    int[] ids = random.ints(rows, 0, 1000).toArray();
    DeviceBuffer x = empty(Element.F16, rows, width);
    EmbeddingKernels kernels = new EmbeddingKernels(gpu);
    DeviceBuffer idsBuffer = ints(ids);
    DeviceBuffer positions = ints(random.ints(rows, 0, 64).sorted().toArray());
    DeviceBuffer wte = floats(Element.F16, 1000, width);
    DeviceBuffer wpe = floats(Element.F16, 64, width);
    print(
        v,
        Element.F16,
        2L * x.bytes() + 2L * rows * Integer.BYTES,
        x.bytes(),
        () -> kernels.embed(idsBuffer, positions, wte, wpe, x, rows, 1000, 64, width));
  }

  private void layerNorm(Variant v) {
    int rows = 64;
    int width = 768;
    LayerNormKernels kernels = new LayerNormKernels(gpu);
    DeviceBuffer x = floats(Element.F16, rows, width);
    DeviceBuffer gamma = floats(Element.F32, width);
    DeviceBuffer beta = floats(Element.F32, width);
    DeviceBuffer y = empty(Element.F16, rows, width);
    print(
        v,
        Element.F16,
        x.bytes() + gamma.bytes() + beta.bytes(),
        y.bytes(),
        () -> kernels.normalize(v, x, gamma, beta, y, rows, width, 1e-5f));
  }

  private void linear(Variant v) {
    int rows = 64;
    int width = 256;
    DeviceBuffer x = floats(Element.F16, rows, width);
    LinearMap map = linearMap(width);
    DeviceBuffer y = empty(Element.F16, rows, width);
    LinearCall call =
        new LinearKernels(gpu).prepare(v, map, x, new LinearEpilogue.Output(y, Activation.NONE));
    print(v, Element.F16, x.bytes() + bytes(map), y.bytes(), () -> call.run(rows));
  }

  private void gemv(Variant v) {
    DeviceBuffer x = floats(Element.F32, 768);
    LinearMap map = linearMap(768);
    DeviceBuffer y = empty(Element.F32, 768);
    LinearCall call =
        new GemvKernels(gpu).prepare(map, x, new LinearEpilogue.Output(y, Activation.NONE));
    print(v, Element.F16, x.bytes() + bytes(map), y.bytes(), () -> call.run(1));
  }

  private LinearMap linearMap(int width) {
    return new LinearMap(
        floats(Element.F16, width, width), null, floats(Element.F32, width), width, width);
  }

  private static long bytes(LinearMap map) {
    return map.weight().bytes() + 4L * map.outputs();
  }

  private void attention(Variant v) {
    int rows = 256;
    int d = 64;
    AttentionKernels kernels =
        keep(
            new AttentionKernels(gpu, new CacheShape(1, 1, rows, d), Element.F16),
            AttentionKernels::close);
    Segments segments = keep(new Segments(gpu, 1), Segments::close);
    segments.set(List.of(new Segment(0, rows, 0, 0)));
    AttentionKernels.Buffers buffers =
        new AttentionKernels.Buffers(
            floats(Element.F16, rows, 3, d),
            floats(Element.F16, rows, d),
            floats(Element.F16, rows, d),
            empty(Element.F16, rows, d),
            empty(Element.F32, rows));
    print(
        v,
        Element.F16,
        3L * buffers.k().bytes() + segments.buffer().bytes(),
        buffers.y().bytes() + buffers.lse().bytes(),
        () -> kernels.run(v, segments, true, 0.125f, buffers));
  }

  private void decode(Variant v) {
    int keys = 512;
    int d = 64;
    DecodeAttention kernels =
        keep(
            new DecodeAttention(gpu, new CacheShape(1, 1, keys, d), Element.F16, Element.F16, 1),
            DecodeAttention::close);
    DecodeAttention.Cache cache =
        new DecodeAttention.Cache(floats(Element.F16, keys, d), floats(Element.F16, keys, d));
    DecodeAttention.Rows rows =
        new DecodeAttention.Rows(floats(Element.F16, 3, d), ints(0), ints(keys), 1, keys);
    DeviceBuffer y = empty(Element.F16, d);
    DeviceBuffer lse = empty(Element.F32, 1);
    print(
        v,
        Element.F16,
        2L * d + 2 * cache.k().bytes() + 2 * Integer.BYTES,
        y.bytes() + lse.bytes(),
        () -> kernels.run(rows, cache, 0.125f, y, lse));
  }

  private void map(Variant v) {
    AttentionMapKernels.Source source = mapSource();
    DeviceBuffer out = empty(Element.F32, 64, 256);
    AttentionMapKernels kernels = mapKernels();
    print(
        v,
        Element.F16,
        leastReadOfMap(source),
        out.bytes(),
        () ->
            kernels.map(
                v,
                source,
                lastRows(),
                AttentionMapKernels.Cells.PROBABILITIES,
                new AttentionMapKernels.Layout.Dense(256),
                out));
  }

  private void statistics(Variant v) {
    int top = 4;
    AttentionMapKernels.Source source = mapSource();
    AttentionMapKernels.Statistics out =
        new AttentionMapKernels.Statistics(
            empty(Element.F32, 64),
            empty(Element.F32, 64),
            empty(Element.I32, 64, top),
            empty(Element.F32, 64, top),
            top);
    AttentionMapKernels kernels = mapKernels();
    print(
        v,
        Element.F16,
        leastReadOfMap(source),
        2 * out.entropy().bytes() + 2 * out.topKeys().bytes(),
        () -> kernels.statistics(v, source, lastRows(), out));
  }

  private AttentionMapKernels mapKernels() {
    return new AttentionMapKernels(gpu, new CacheShape(1, 1, 256, 64), Element.F16, Element.F16);
  }

  private AttentionMapKernels.Source mapSource() {
    float[] lse = new float[256];
    Arrays.fill(lse, 5.5f); // about the logarithm of 256
    return new AttentionMapKernels.Source(
        floats(Element.F16, 256, 3, 64),
        floats(Element.F16, 256, 64),
        upload(Element.F32, lse),
        ints(0, 256, 0, 0),
        1,
        true,
        0.125f);
  }

  private AttentionMapKernels.Selection lastRows() {
    return new AttentionMapKernels.Selection(ints(0), 1, 192, 64);
  }

  /** q and lse of 64 rows, all keys, the head and the segment. */
  private static long leastReadOfMap(AttentionMapKernels.Source source) {
    return 64 * (2 * 64 + 4) + source.k().bytes() + 4 + source.segments().bytes();
  }

  private void pointwise(Variant v) {
    int n = 64 * 768;
    PointwiseKernels kernels = new PointwiseKernels(gpu);
    DeviceBuffer x = floats(Element.F16, n);
    DeviceBuffer y = floats(Element.F16, n);
    DeviceBuffer wide = empty(Element.F32, n);
    switch (v.name()) {
      case "residual" ->
          print(v, Element.F16, 2 * x.bytes(), x.bytes(), () -> kernels.addResidual(x, y, n));
      case "activate" ->
          print(
              v,
              Element.F16,
              x.bytes(),
              x.bytes(),
              () -> kernels.activate(Activation.GELU_NEW, x, y, n));
      default -> print(v, Element.F16, x.bytes(), wide.bytes(), () -> kernels.convert(x, wide, n));
    }
  }

  private void sample(Variant v) {
    DeviceBuffer values = floats(Element.F32, 50_257);
    SampleKernels.Logits logits = new SampleKernels.Logits(values, 1, 50_257);
    SampleKernels kernels = new SampleKernels(gpu);
    DeviceBuffer ids = empty(Element.I32, 1);
    DeviceBuffer errors = empty(Element.I32, 1);
    DeviceBuffer y = empty(Element.F32, 50_257);
    long read = values.bytes();
    switch (v.name()) {
      case "argmax" ->
          print(v, Element.F32, read, 8, () -> kernels.argmax(logits, null, ids, errors));
      case "softmax" ->
          print(v, Element.F32, read, y.bytes(), () -> kernels.softmax(logits, y, 0.8f, false));
      default -> {
        SampleKernels.Chosen chosen =
            new SampleKernels.Chosen(ids, empty(Element.F32, 1), empty(Element.I32, 1), errors);
        SamplingOptions options = new SamplingOptions(0.8f, 50, 0.95, 0, 1, 7);
        DeviceBuffer samples = ints(0);
        DeviceBuffer positions = ints(0);
        print(
            v,
            Element.F32,
            read + 8,
            16,
            () -> kernels.sample(logits, null, null, samples, positions, options, chosen));
      }
    }
  }

  /** Kernels of count_kernels.cu; {@link CountsTest} knows what they must give. */
  private void self() {
    DeviceBuffer x = floats(Element.F32, 128, 32);
    DeviceBuffer y = empty(Element.F32, 128);
    for (int stride : new int[] {0, 1, 8}) {
      Launch global = launch("count_global", Parameter.POINTER, Parameter.POINTER, Parameter.INT);
      self("global " + stride, 0, global.set(0, x).set(1, y).set(2, stride));
    }
    for (int stride : new int[] {1, 2}) {
      Launch vector = launch("count_vector", Parameter.POINTER, Parameter.POINTER, Parameter.INT);
      self("vector " + stride, 0, vector.set(0, x).set(1, y).set(2, stride));
    }
    int[][] accesses = {
      {4, 0}, {4, 4}, {4, 8}, {4, 128}, {8, 8}, {8, 16}, {16, 16}, {16, 32}, {16, 144}
    };
    for (int[] a : accesses) {
      Launch shared = launch("count_shared", Parameter.INT, Parameter.INT);
      self("shared %d %d".formatted(a[0], a[1]), 32 * 144, shared.set(0, a[0]).set(1, a[1]));
    }
    for (int stride : new int[] {16, 128}) {
      Launch tensor =
          launch(
              "count_tensor", Parameter.POINTER, Parameter.INT, Parameter.INT, Parameter.POINTER);
      self("tensor " + stride, 32 * 128, tensor.set(0, x).set(1, 20).set(2, stride).setNull(3));
    }
    Launch diverged = launch("count_diverged", Parameter.POINTER, Parameter.POINTER);
    self("diverged", 0, diverged.set(0, x).setNull(1));
  }

  private Launch launch(String kernel, Parameter... parameters) {
    return new Launch(gpu.kernel("count_kernels", kernel), parameters);
  }

  private void self(String name, int sharedBytes, Launch launch) {
    Counts counts =
        Counts.of(
            gpu, SELF, name, Element.F32, 0, 0, () -> launch.run(1, 1, 1, 32, 1, sharedBytes));
    System.out.println(counts.line());
  }

  private void print(Variant v, Element element, long leastRead, long leastWritten, Runnable work) {
    Counts counts = Counts.of(gpu, v.family(), v.name(), element, leastRead, leastWritten, work);
    System.out.println(counts.line());
  }

  private DeviceBuffer floats(Element element, int... shape) {
    float[] values = new float[elements(shape)];
    for (int i = 0; i < values.length; i++) {
      values[i] = (float) random.nextGaussian();
    }
    return upload(element, values);
  }

  private DeviceBuffer upload(Element element, float[] values) {
    DeviceBuffer buffer = empty(element, values.length);
    buffer.upload(values);
    return buffer;
  }

  private DeviceBuffer ints(int... values) {
    DeviceBuffer buffer = empty(Element.I32, values.length);
    buffer.upload(values);
    return buffer;
  }

  private DeviceBuffer empty(Element element, int... shape) {
    return keep(gpu.allocate(element, elements(shape)), DeviceBuffer::close);
  }

  private static int elements(int... shape) {
    return Arrays.stream(shape).reduce(1, Math::multiplyExact);
  }

  private <T> T keep(T resource, Consumer<T> close) {
    open.add(() -> close.accept(resource));
    return resource;
  }

  @Override
  public void close() {
    open.reversed().forEach(Runnable::run);
    gpu.close();
  }
}
