package dev.loupe.ops.cuda;

import dev.loupe.cuda.Cublas;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.DeviceScratch;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.kernels.AttentionKernels;
import dev.loupe.cuda.kernels.CublasLinear;
import dev.loupe.cuda.kernels.EmbeddingKernels;
import dev.loupe.cuda.kernels.GemvKernels;
import dev.loupe.cuda.kernels.LayerNormKernels;
import dev.loupe.cuda.kernels.LinearCall;
import dev.loupe.cuda.kernels.LinearEpilogue;
import dev.loupe.cuda.kernels.LinearKernels;
import dev.loupe.cuda.kernels.LinearMap;
import dev.loupe.cuda.kernels.PointwiseKernels;
import dev.loupe.cuda.kernels.SampleKernels;
import dev.loupe.cuda.kernels.StepKernels;
import dev.loupe.cuda.kernels.WeightKernels;
import dev.loupe.cuda.selftest.KernelTimer;
import dev.loupe.cuda.selftest.KernelTimes;
import dev.loupe.cuda.selftest.KernelVerdicts;
import dev.loupe.cuda.selftest.ModelShape;
import dev.loupe.cuda.selftest.VerdictChoice;
import dev.loupe.ops.AttentionInput;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.AttentionPlan.Kind;
import dev.loupe.ops.Batch;
import dev.loupe.ops.Gemm;
import dev.loupe.ops.LayerNorm;
import dev.loupe.ops.Linear;
import dev.loupe.ops.Ops;
import dev.loupe.ops.Precision;
import dev.loupe.ops.SessionRoom;
import dev.loupe.ops.SessionSize;
import dev.loupe.ops.StepPlan;
import dev.loupe.ops.Steps;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.ops.Weight;
import dev.loupe.sampling.TokenDistribution;
import dev.loupe.weights.Activation;
import dev.loupe.weights.Gpt2Config;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * The operations on one NVIDIA GPU. A pass of a prompt multiplies on the tensor cores, in the
 * weights' element where that is narrower than f32; a decoding step, whose activations are f32,
 * streams the weights through the GEMV kernels.
 *
 * <p>A {@link Tensor} carries a device address; what lies there is looked up by it. Operations are
 * put on the GPU's stream; only {@link #read} and {@link #logprobs}, which bring something to the
 * host, wait.
 */
public final class CudaOps implements Ops {
  /** Device memory and the arena that it ends with. */
  private record Block(DeviceBuffer buffer, CudaArena arena) {}

  /** A weight on the device, [out, in] there. */
  record CudaWeight(LinearMap map) implements Weight {
    @Override
    public int in() {
      return map.in();
    }

    @Override
    public int out() {
      return map.outputs();
    }
  }

  // all maps of one layer, 12 heads over 1,024 tokens in f32, are 27 MB: they need not wait
  static final int MAPS_AHEAD = 8;

  /** The kernels of every run; those of attention maps are loaded for runs that ask for maps. */
  private static final List<String> SOURCES =
      List.of(
          "weights",
          "embedding",
          "layernorm",
          "linear",
          "gemv",
          "attention",
          "attention_decode",
          "pointwise",
          "sample",
          "step");

  private final boolean graphs;
  private final Gemm gemm;
  private final @Nullable VerdictChoice choice; // null: every kernel is trusted
  private final Gpu gpu;
  private final Element weights;
  private final Element activations;
  private final EmbeddingKernels embedding;
  private final LayerNormKernels layerNorm;
  private final LinearKernels linear;
  private final GemvKernels gemv;
  private final WeightKernels conversion;
  private final @Nullable CublasLinear cublas;
  private final DeviceScratch
      wideWeight; // of the widest int8 matrix so far, in what activations are
  private final DeviceScratch tokensOfRows; // for logprobs
  private final DeviceScratch logprobsOfRows;
  private final DeviceScratch infinitiesOfGaps; // likewise
  private int infinitiesUploaded;
  private @Nullable SampleKernels sampling; // once it is asked for logprobs
  private final SessionPool pool;
  private final ConcurrentSkipListMap<Long, Block> blocks = new ConcurrentSkipListMap<>();

  /**
   * Opens a GPU.
   *
   * @param device number in the driver's order, from 0
   * @param precision what the weights are kept as
   * @param gemm what multiplies the rows of a prompt
   * @throws GpuException if there is no such GPU, or it can't run the kernels, or cuBLAS is asked
   *     for and not there
   */
  public CudaOps(int device, Precision precision, Gemm gemm) {
    this(device, precision, gemm, true);
  }

  /**
   * @param graphs whether decoding steps are replayed as graphs
   */
  CudaOps(int device, Precision precision, Gemm gemm, boolean graphs) {
    this(device, precision, gemm, graphs, null, null, Map.of());
  }

  /**
   * Opens a GPU and uses the kernels that are right on it, the fastest first.
   *
   * @param verdicts on its kernels
   * @param config of the model, on whose shapes kernels are timed
   * @param named name of the variant to use, by family, whatever its verdict
   * @throws GpuException likewise, or if cuBLAS is asked for and multiplies wrongly
   */
  public CudaOps(
      int device,
      Precision precision,
      Gemm gemm,
      KernelVerdicts verdicts,
      Gpt2Config config,
      Map<String, String> named) {
    this(device, precision, gemm, verdicts.graphs(), verdicts, config, named);
  }

  private CudaOps(
      int device,
      Precision precision,
      Gemm gemm,
      boolean graphs,
      @Nullable KernelVerdicts verdicts,
      @Nullable Gpt2Config config,
      Map<String, String> named) {
    this.graphs = graphs;
    this.gemm = gemm;
    weights =
        switch (precision) {
          case F32 -> Element.F32;
          case F16 -> Element.F16;
          case BF16 -> Element.BF16;
          case INT8 -> Element.I8;
        };
    activations = CudaMemory.activations(weights);
    gpu = Gpu.open(device);
    try {
      gpu.load(SOURCES); // what is missing or refused shows here, not in the middle of a text
      embedding = new EmbeddingKernels(gpu);
      layerNorm = new LayerNormKernels(gpu);
      linear = new LinearKernels(gpu);
      gemv = new GemvKernels(gpu);
      conversion = new WeightKernels(gpu);
      wideWeight = new DeviceScratch(gpu, activations);
      tokensOfRows = new DeviceScratch(gpu, Element.I32);
      logprobsOfRows = new DeviceScratch(gpu, Element.F32);
      infinitiesOfGaps = new DeviceScratch(gpu, Element.F32);
      tryOut();
      cublas = cublas(verdicts);
      choice = verdicts == null || config == null ? null : choice(verdicts, config, named);
      pool = new SessionPool(gpu.totalBytes());
      gpu.whenShort(pool::freeOne);
    } catch (RuntimeException | Error e) {
      try {
        gpu.close();
      } catch (GpuException closing) {
        e.addSuppressed(closing);
      }
      throw e;
    }
  }

  private VerdictChoice choice(
      KernelVerdicts verdicts, Gpt2Config config, Map<String, String> named) {
    gpu.use(new VerdictChoice(verdicts, KernelTimes.NONE, named));
    ModelShape shape = new ModelShape(config.nEmbd(), config.nInner(), config.nHead(), activations);
    KernelTimes times = KernelTimer.of(gpu, verdicts, shape, cublas);
    VerdictChoice choice = new VerdictChoice(verdicts, times, named);
    gpu.use(choice);
    return choice;
  }

  /** A card that loads kernels may still run none. */
  private void tryOut() {
    try (DeviceBuffer x = gpu.allocate(Element.F32, 3);
        DeviceBuffer y = gpu.allocate(activations, 3)) {
      x.upload(new float[] {0.5f, -2, 3});
      new PointwiseKernels(gpu).convert(x, y, 3);
      float[] values = new float[3];
      y.download(values);
      if (!Arrays.equals(values, new float[] {0.5f, -2, 3})) {
        throw new GpuException(
            "%s computes wrongly: 0.5, -2 and 3 became %s"
                .formatted(gpu.name(), Arrays.toString(values)));
      }
    }
  }

  private @Nullable CublasLinear cublas(@Nullable KernelVerdicts verdicts) {
    if (gemm == Gemm.OWN
        || (gemm == Gemm.AUTO && (verdicts == null || !verdicts.cublas(activations)))) {
      return null;
    }
    try {
      Optional<Cublas> found = Cublas.open(gpu);
      if (found.isPresent()) {
        return new CublasLinear(gpu, found.get());
      }
    } catch (GpuException e) {
      if (gemm == Gemm.CUBLAS) {
        throw e;
      }
    }
    if (gemm == Gemm.CUBLAS) {
      throw new GpuException(
          "cuBLAS is not installed: there is no %s; Loupe's own kernels do without"
              .formatted(Cublas.searched()));
    }
    return null;
  }

  /** What decides which kernels serve; empty if all are trusted. */
  public Optional<VerdictChoice> choice() {
    return Optional.ofNullable(choice);
  }

  Gpu gpu() {
    return gpu;
  }

  Element weights() {
    return weights;
  }

  /** What activations of a prompt, the KV cache and tables are. */
  Element activations() {
    return activations;
  }

  void register(DeviceBuffer buffer, CudaArena arena) {
    blocks.put(buffer.address(), new Block(buffer, arena));
  }

  void forget(long address) {
    blocks.remove(address);
  }

  /** What sessions leave to each other. */
  SessionPool pool() {
    return pool;
  }

  private Block block(Tensor t) {
    Map.Entry<Long, Block> entry = blocks.floorEntry(t.data().address());
    if (entry == null
        || t.data().address() + t.byteSize() > entry.getKey() + entry.getValue().buffer().bytes()) {
      throw new IllegalStateException(
          "a tensor of %d x %d was freed".formatted(t.rows(), t.cols()));
    }
    return entry.getValue();
  }

  /** Where a tensor lies, and what follows it in the same allocation. */
  DeviceBuffer buffer(Tensor t) {
    DeviceBuffer whole = block(t).buffer();
    long from = (t.data().address() - whole.address()) / whole.element().bytes();
    return from == 0 ? whole : whole.slice(from, whole.elements() - from);
  }

  private CudaPass pass(Tensor t) {
    return block(t).arena().pass();
  }

  @Override
  public void requireRoom(Gpt2Config config, boolean ownHead) {
    String narrower =
        Stream.of(Element.F16, Element.I8)
            .filter(e -> e.bytes() < weights.bytes())
            .map(
                e ->
                    "%s weights (%s), "
                        .formatted(
                            e == Element.I8 ? "int8" : "f16",
                            Gpu.size(CudaMemory.ofModel(config, ownHead, e).bytes())))
            .collect(Collectors.joining());
    CudaMemory.ofModel(config, ownHead, weights)
        .requireRoom(
            gpu,
            pool::freeOne,
            "the model",
            "try %sa smaller model or the CPU".formatted(narrower));
  }

  @Override
  public void requireRoom(SessionSize size) {
    String advice =
        "use %s%s%sa shorter text or fewer tokens"
            .formatted(
                weights == Element.F32 ? "f16 weights, " : "",
                size.samples() > 1 ? "fewer samples, " : "",
                size.attention().isPresent() ? "fewer layers or heads, " : "");
    memory(size).requireRoom(gpu, pool::freeOne, "the run", advice);
  }

  /** What a session of such a size takes. */
  CudaMemory memory(SessionSize size) {
    long scores =
        AttentionKernels.scratchBytes(
            gpu, CudaMemory.cacheShape(size), activations, size.rows(), size.positions());
    return CudaMemory.ofSession(size, activations, cublas != null, scores);
  }

  @Override
  public SessionRoom session(TensorArena model, SessionSize least, SessionSize ample) {
    for (SessionSize size : List.of(ample, least)) {
      SessionPool.Key key = new SessionPool.Key((CudaArena) model, size);
      CudaArena kept = pool.take(key);
      if (kept != null) {
        return new SessionRoom(kept, size);
      }
    }
    boolean fits = memory(ample).fits(gpu, pool::freeOne);
    SessionSize size = fits ? ample : least;
    if (!fits) {
      requireRoom(least);
    }
    return new SessionRoom(new CudaArena(this, new SessionPool.Key((CudaArena) model, size)), size);
  }

  @Override
  public TensorArena arena() {
    return new CudaArena(this);
  }

  @Override
  public void embed(Batch batch, Tensor wte, Tensor wpe, Tensor x) {
    same("rows", batch.rows(), x.rows());
    gpu.run(
        () -> {
          Block block = block(x);
          int most = Math.toIntExact(block.buffer().elements() / x.cols());
          CudaPass.Rows rows = block.arena().pass().begin(batch, most);
          embedding.embed(
              rows.ids(),
              rows.positions(),
              buffer(wte),
              buffer(wpe),
              buffer(x),
              x.rows(),
              wte.rows(),
              wpe.rows(),
              x.cols());
        });
  }

  @Override
  public void layerNorm(Tensor x, LayerNorm norm, Tensor out) {
    same("rows", out.rows(), x.rows());
    gpu.run(
        () ->
            layerNorm.normalize(
                buffer(x),
                buffer(norm.weight()),
                buffer(norm.bias()),
                buffer(out),
                x.rows(),
                x.cols(),
                norm.epsilon()));
  }

  @Override
  public void linear(Tensor x, Linear w, Activation f, Tensor out) {
    LinearEpilogue epilogue = new LinearEpilogue.Output(buffer(out), kernel(f));
    multiply(x, w.weight(), w.bias(), epilogue, out);
  }

  @Override
  public void linearResidual(Tensor x, Linear w, Tensor acc) {
    multiply(x, w.weight(), w.bias(), new LinearEpilogue.Residual(buffer(acc)), acc);
  }

  @Override
  public void qkv(Tensor x, Linear w, AttentionInput in) {
    CudaPass pass = pass(in.qkv());
    CudaPass.Rows rows = pass.rows();
    pass.hold();
    LinearEpilogue epilogue =
        new LinearEpilogue.QkvAppend(
            buffer(in.qkv()),
            buffer(in.kv().keys(in.layer())),
            buffer(in.kv().values(in.layer())),
            rows.sequences(),
            rows.positions(),
            CudaPass.shape(in.kv()));
    multiply(x, w.weight(), w.bias(), epilogue, in.qkv());
  }

  @Override
  public void logits(Tensor x, Weight head, Tensor out) {
    LinearEpilogue epilogue =
        new LinearEpilogue.Output(buffer(out), dev.loupe.cuda.kernels.KernelActivation.NONE);
    multiply(x, head, null, epilogue, out);
  }

  private void multiply(
      Tensor x, Weight weight, @Nullable Tensor bias, LinearEpilogue epilogue, Tensor out) {
    same("rows", out.rows(), x.rows());
    LinearMap w = ((CudaWeight) weight).map();
    gpu.run(
        () -> {
          DeviceBuffer input = buffer(x);
          LinearMap map =
              new LinearMap(
                  w.weight(), w.scales(), bias == null ? null : buffer(bias), w.in(), w.outputs());
          Optional<Variant> streaming = streaming(map, input, x.rows());
          if (streaming.isEmpty() && map.scales() != null) {
            widened(map, input, epilogue, x.rows()).run(x.rows());
            return;
          }
          CudaPass pass = pass(out);
          CublasLinear library = library(map, input, pass, x.rows());
          Variant own =
              library == null ? streaming.orElseGet(() -> linear.variantFor(map, x.rows())) : null;
          List<Object> key =
              List.of(
                  w.weight().address(),
                  input.address(),
                  out.data().address(),
                  own == null ? "cublas" : own,
                  epilogue instanceof LinearEpilogue.QkvAppend append
                      ? List.of(append.sequence().address(), append.cache())
                      : List.of());
          pass.call(
                  key,
                  () ->
                      own == null
                          ? Objects.requireNonNull(library).prepare(map, input, epilogue)
                          : streaming.isPresent()
                              ? gemv.prepare(own, map, input, epilogue)
                              : linear.prepare(own, map, input, epilogue))
              .run(x.rows());
        });
  }

  /** What streams the weights through a few rows in f32; empty for others, or if it can't. */
  private Optional<Variant> streaming(LinearMap map, DeviceBuffer input, int rows) {
    boolean few = rows <= GemvKernels.MAX_ROWS && input.element() == Element.F32;
    return few ? gemv.variantFor(map, rows) : Optional.empty();
  }

  /** cuBLAS, for many rows; a recorded step would hold what it decides for itself. */
  private @Nullable CublasLinear library(
      LinearMap map, DeviceBuffer input, CudaPass pass, int rows) {
    boolean serves =
        cublas != null
            && !pass.isResident()
            && rows > GemvKernels.MAX_ROWS
            && CublasLinear.takes(map, input)
            && cublas.isUsable(rows)
            && (gemm == Gemm.CUBLAS
                || (choice != null && choice.takesCublas(input.element(), rows)));
    return serves ? cublas : null;
  }

  /** Many rows of int8 weights: those of one map at a time become what the activations are. */
  private LinearCall widened(LinearMap map, DeviceBuffer input, LinearEpilogue epilogue, int rows) {
    DeviceBuffer wide = wideWeight.atLeast((long) map.in() * map.outputs());
    conversion.dequantise(map, wide);
    LinearMap w = new LinearMap(wide, null, map.bias(), map.in(), map.outputs());
    return linear.prepare(linear.variantFor(w, rows), w, input, epilogue);
  }

  /** Whether there are kernels for it; a model with another one runs on the CPU. */
  private static boolean computes(Activation f) {
    return Arrays.stream(dev.loupe.cuda.kernels.KernelActivation.values())
        .anyMatch(kernel -> kernel.name().equals(f.name()));
  }

  /** Why no GPU can run a model of this shape; empty if one can. */
  public static Optional<String> whyNotOf(Gpt2Config config) {
    if (config.headDim() % 8 != 0 || config.headDim() > 128) {
      return Optional.of(
          "heads %d wide: the GPU takes multiples of 8 up to 128".formatted(config.headDim()));
    }
    if (!computes(config.activation())) {
      return Optional.of(
          "activation_function %s: no GPU kernel computes it"
              .formatted(config.activation().configName()));
    }
    return Optional.empty();
  }

  @Override
  public Optional<String> whyNot(Gpt2Config config) {
    return whyNotOf(config);
  }

  private static dev.loupe.cuda.kernels.KernelActivation kernel(Activation f) {
    return dev.loupe.cuda.kernels.KernelActivation.valueOf(f.name());
  }

  @Override
  public void attention(AttentionInput in, Tensor y, Tensor lse) {
    same("rows", y.rows(), in.batch().rows());
    same("rows", lse.rows(), in.batch().rows());
    gpu.run(() -> pass(y).attention(in, buffer(in.qkv()), buffer(y), buffer(lse)));
  }

  @Override
  public void probabilities(
      AttentionInput in, Tensor lse, int[] heads, int firstRow, int rows, Tensor out) {
    map(in, lse, heads, firstRow, rows, Kind.PROBABILITIES, out);
  }

  @Override
  public void scores(AttentionInput in, int[] heads, int firstRow, int rows, Tensor out) {
    map(in, null, heads, firstRow, rows, Kind.SCORES, out);
  }

  @Override
  public void statistics(
      AttentionInput in, Tensor lse, int[] heads, int firstRow, int rows, int top, Tensor out) {
    same("columns", AttentionPlan.statisticsOf(top), out.cols());
    map(in, lse, heads, firstRow, rows, Kind.STATISTICS, out);
  }

  private void map(
      AttentionInput in,
      @Nullable Tensor lse,
      int[] heads,
      int firstRow,
      int rows,
      Kind kind,
      Tensor out) {
    same("rows", out.rows(), heads.length * rows);
    gpu.run(
        () ->
            pass(out).map(in, kind, lse == null ? null : buffer(lse), heads, firstRow, rows, out));
  }

  @Override
  public int rebuildsAhead() {
    return MAPS_AHEAD;
  }

  @Override
  public void copy(Tensor from, Tensor to) {
    same("rows", to.rows(), from.rows());
    same("width", to.cols(), from.cols());
    if (from.data().address() != to.data().address()) {
      buffer(to).copyFrom(buffer(from), (long) from.rows() * from.cols());
    }
  }

  @Override
  public void read(Tensor from, int row, float[] into, int count) {
    if (pass(from).readMap(from.data().address(), row, into, count)) {
      return;
    }
    Tensor one = from.rows(row, 1);
    if (count > from.cols() || count > into.length) {
      throw new IndexOutOfBoundsException(
          "%d columns of %d into %d".formatted(count, from.cols(), into.length));
    }
    if (count == into.length) {
      buffer(one).download(into);
      return;
    }
    float[] values = new float[count];
    buffer(one).download(values);
    System.arraycopy(values, 0, into, 0, count);
  }

  @Override
  public void logprobs(Tensor x, int[] ids, BitSet sayable, double[] out) {
    same("rows", x.rows(), ids.length);
    same("rows", x.rows(), out.length);
    for (int id : ids) {
      if (id >= x.cols()) {
        throw new IllegalArgumentException("token %d of %d".formatted(id, x.cols()));
      }
    }
    if (ids.length == 0) {
      return;
    }
    if (!SampleKernels.canTellLogprobs(gpu, ids.length)) {
      float[] row = new float[x.cols()];
      for (int r = 0; r < ids.length; r++) {
        read(x, r, row, row.length);
        out[r] = ids[r] < 0 ? Double.NaN : new TokenDistribution(row, sayable).logprob(ids[r]);
      }
      return;
    }
    float[] found = new float[ids.length];
    gpu.run(
        () -> {
          fillGaps(x, sayable);
          SampleKernels kernels = sampling;
          if (kernels == null) {
            kernels = new SampleKernels(gpu);
            sampling = kernels;
          }
          DeviceBuffer tokens = tokensOfRows.atLeast(ids.length);
          DeviceBuffer logprobs = logprobsOfRows.atLeast(ids.length);
          tokens.upload(ids);
          kernels.logprobs(
              new SampleKernels.Logits(buffer(x), x.rows(), x.cols()), tokens, logprobs);
          logprobs.download(found);
        });
    for (int r = 0; r < ids.length; r++) {
      out[r] = found[r];
    }
  }

  /** Sets the logits of rows that only pad the vocabulary to -infinity. */
  private void fillGaps(Tensor x, BitSet sayable) {
    List<int[]> gaps = Ops.gaps(sayable, x.cols());
    int widest = gaps.stream().mapToInt(gap -> gap[1] - gap[0]).max().orElse(0);
    if (widest == 0) {
      return;
    }
    DeviceBuffer infinities = infinitiesOfGaps.atLeast(widest);
    if (widest > infinitiesUploaded) {
      float[] values = new float[widest];
      Arrays.fill(values, Float.NEGATIVE_INFINITY);
      infinities.slice(0, widest).upload(values);
      infinitiesUploaded = widest;
    }
    for (int r = 0; r < x.rows(); r++) {
      for (int[] gap : gaps) {
        buffer(x)
            .slice((long) r * x.cols() + gap[0], gap[1] - gap[0])
            .copyFrom(infinities, gap[1] - gap[0]);
      }
    }
  }

  @Override
  public Optional<Steps> steps(Supplier<StepPlan> plan) {
    if (!SampleKernels.canSample(gpu) || !StepKernels.canAdvance(gpu)) {
      return Optional.empty();
    }
    StepPlan made = plan.get();
    return Optional.of(new CudaSteps(this, block(made.logits()).arena(), made, graphs));
  }

  @Override
  public OptionalLong deviceBytesInUse() {
    return OptionalLong.of(gpu.totalBytes() - gpu.freeBytes());
  }

  @Override
  public String device() {
    return "%s, %s weights".formatted(gpu.name(), weights.suffix());
  }

  private static void same(String what, int a, int b) {
    if (a != b) {
      throw new IllegalArgumentException("%s: %d and %d".formatted(what, a, b));
    }
  }

  @Override
  public void close() {
    try (gpu;
        cublas;
        pool) { // in reverse: the context last, which the others need
    }
  }
}
