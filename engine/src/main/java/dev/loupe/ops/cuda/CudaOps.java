package dev.loupe.ops.cuda;

import dev.loupe.cuda.ColdTimer;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.kernels.SampleKernels;
import dev.loupe.cuda.kernels.StepKernels;
import dev.loupe.cuda.selftest.KernelVerdicts;
import dev.loupe.cuda.selftest.VerdictChoice;
import dev.loupe.ops.Batch;
import dev.loupe.ops.Gemm;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Ops;
import dev.loupe.ops.Pass;
import dev.loupe.ops.Precision;
import dev.loupe.ops.SessionRoom;
import dev.loupe.ops.SessionSize;
import dev.loupe.ops.StepPlan;
import dev.loupe.ops.Steps;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.weights.config.Gpt2Config;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalLong;
import org.jspecify.annotations.Nullable;

/**
 * The operations on one NVIDIA GPU. A pass of a prompt multiplies on the tensor cores, in the
 * weights' element where that is narrower than f32; a decoding step, whose activations are f32,
 * streams the weights through the GEMV kernels.
 *
 * <p>A {@link Tensor} carries a device address; what lies there is looked up by it. Only what
 * brings something to the host waits for the GPU: {@link #read}, {@link #logprobs} and {@link
 * dev.loupe.ops.RebuiltRows#read}.
 */
public final class CudaOps implements Ops {
  // all maps of one layer, 12 heads over 1,024 tokens in f32, are 27 MB: they need not wait
  static final int MAPS_AHEAD = 8;

  private final boolean graphs;
  private volatile long launchesOfStep; // 0: none has run
  private final Gpu gpu;
  private final Element weights;
  private final Element activations;
  private final CudaKernels kernels;
  private final CudaLogprobs logprobs;
  private final CudaRoom room;
  private final CudaTensors tensors = new CudaTensors();

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
    weights = CudaKernels.element(precision);
    activations = CudaMemory.activations(weights);
    gpu = Gpu.open(device);
    try {
      kernels = new CudaKernels(gpu, activations, gemm, verdicts, config, named);
      logprobs = new CudaLogprobs(this);
      room = new CudaRoom(this, kernels.matmul().cublas().isPresent());
    } catch (RuntimeException | Error e) {
      try {
        gpu.close();
      } catch (GpuException closing) {
        e.addSuppressed(closing);
      }
      throw e;
    }
  }

  /** What decides which kernels serve; empty if all are trusted. */
  public Optional<VerdictChoice> choice() {
    return kernels.choice();
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

  CudaKernels kernels() {
    return kernels;
  }

  CudaTensors tensors() {
    return tensors;
  }

  /** Where a tensor lies, and what follows it in the same allocation. */
  DeviceBuffer buffer(Tensor t) {
    return tensors.buffer(t);
  }

  CudaRoom room() {
    return room;
  }

  /**
   * Refuses a model that there is no room for, before any of it is loaded.
   *
   * @param ownHead whether the head is not wte
   * @param sessions of which one shall have room beside it, the best first; none: there is none
   * @return the samples of the first that has; 0 for none
   * @throws dev.loupe.cuda.driver.GpuMemoryException if the model has no room, or none of them has
   */
  public int plan(Gpt2Config config, boolean ownHead, List<SessionSize> sessions) {
    return room.plan(config, ownHead, sessions);
  }

  @Override
  public void requireRoom(SessionSize size) {
    room.requireRoom(size);
  }

  @Override
  public SessionRoom session(TensorArena model, SessionSize least, SessionSize ample) {
    return room.session(model, least, ample);
  }

  @Override
  public TensorArena arena() {
    return new CudaArena(this);
  }

  @Override
  public Pass begin(Batch batch, KvCache kv, Mask mask) {
    return new CudaPass(this, batch, kv, mask);
  }

  @Override
  public Optional<String> whyNot(Gpt2Config config) {
    return CudaLimits.whyNot(config);
  }

  @Override
  public int rebuildsAhead() {
    return MAPS_AHEAD;
  }

  @Override
  public void copy(Tensor from, Tensor to) {
    tensors.copy(from, to);
  }

  @Override
  public void read(Tensor from, int row, float[] into, int count) {
    tensors.read(from, row, into, count);
  }

  @Override
  public void write(float[] from, Tensor to) {
    tensors.write(from, to);
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
    logprobs.of(x, ids, sayable, out);
  }

  /** How many rows a pass has decides which kernel multiplies them. */
  @Override
  public boolean mixesRuns() {
    return false;
  }

  @Override
  public boolean hasSteps() {
    return SampleKernels.canSample(gpu) && StepKernels.canAdvance(gpu);
  }

  @Override
  public Steps steps(StepPlan plan) {
    return new CudaSteps(this, tensors.block(plan.logits()).arena(), plan, graphs);
  }

  @Override
  public OptionalLong deviceBytesInUse() {
    return OptionalLong.of(gpu.totalBytes() - gpu.freeBytes());
  }

  /** Tells how many kernels a step launched. */
  void stepLaunched(long kernels) {
    launchesOfStep = kernels;
  }

  @Override
  public OptionalLong launchesOfStep() {
    return launchesOfStep == 0 ? OptionalLong.empty() : OptionalLong.of(launchesOfStep);
  }

  @Override
  public OptionalDouble copyBytesPerSecond() {
    try (ColdTimer timer = new ColdTimer(gpu, ColdTimer.USUAL_BYTES)) {
      return OptionalDouble.of(timer.copyBytesPerSecond());
    }
  }

  @Override
  public String device() {
    return "%s, %s weights".formatted(gpu.name(), weights.suffix());
  }

  static void same(String what, int a, int b) {
    if (a != b) {
      throw new IllegalArgumentException("%s: %d and %d".formatted(what, a, b));
    }
  }

  @Override
  public void close() {
    try (gpu;
        kernels;
        room) { // in reverse: the context last, which the others need
    }
  }
}
