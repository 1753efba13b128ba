package dev.loupe.ops.cuda;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.kernels.EmbeddingKernels;
import dev.loupe.cuda.kernels.LayerNormKernels;
import dev.loupe.cuda.kernels.PointwiseKernels;
import dev.loupe.cuda.selftest.KernelTimer;
import dev.loupe.cuda.selftest.KernelTimes;
import dev.loupe.cuda.selftest.KernelVerdicts;
import dev.loupe.cuda.selftest.ModelShape;
import dev.loupe.cuda.selftest.VerdictChoice;
import dev.loupe.ops.Gemm;
import dev.loupe.ops.Precision;
import dev.loupe.weights.config.Gpt2Config;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/** The kernels that compute a model's passes on one card: loaded, tried out, and chosen. */
final class CudaKernels implements AutoCloseable {
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

  private final Gpu gpu;
  private final Element activations;
  private final EmbeddingKernels embedding;
  private final LayerNormKernels layerNorm;
  private final CudaMatmul matmul;
  private final @Nullable VerdictChoice choice; // null: every kernel is trusted

  /**
   * Loads them all: what is missing or refused shows here, not in the middle of a text.
   *
   * @param activations what the activations of a prompt are
   * @param gemm what multiplies the rows of a prompt
   * @param verdicts on the card's kernels; null if all are trusted
   * @param config of the model, on whose shapes kernels are timed; null if none is
   * @param named name of the variant to use, by family, whatever its verdict
   * @throws GpuException if the card can't run them, or cuBLAS is asked for and not there
   */
  CudaKernels(
      Gpu gpu,
      Element activations,
      Gemm gemm,
      @Nullable KernelVerdicts verdicts,
      @Nullable Gpt2Config config,
      Map<String, String> named) {
    this.gpu = gpu;
    this.activations = activations;
    gpu.load(SOURCES);
    embedding = new EmbeddingKernels(gpu);
    layerNorm = new LayerNormKernels(gpu);
    tryOut();
    matmul = new CudaMatmul(gpu, gemm, verdicts, activations);
    choice = verdicts == null || config == null ? null : choice(verdicts, config, named);
  }

  /** What weights are kept as on the device. */
  static Element element(Precision precision) {
    return switch (precision) {
      case F32 -> Element.F32;
      case F16 -> Element.F16;
      case BF16 -> Element.BF16;
      case INT8 -> Element.I8;
    };
  }

  private VerdictChoice choice(
      KernelVerdicts verdicts, Gpt2Config config, Map<String, String> named) {
    gpu.use(new VerdictChoice(verdicts, KernelTimes.NONE, named));
    ModelShape shape = new ModelShape(config.nEmbd(), config.nInner(), config.nHead(), activations);
    KernelTimes times = KernelTimer.of(gpu, verdicts, shape, matmul.cublas().orElse(null));
    VerdictChoice choice = new VerdictChoice(verdicts, times, named);
    gpu.use(choice);
    matmul.use(choice);
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

  EmbeddingKernels embedding() {
    return embedding;
  }

  LayerNormKernels layerNorm() {
    return layerNorm;
  }

  CudaMatmul matmul() {
    return matmul;
  }

  /** What decides which kernels serve; empty if all are trusted. */
  Optional<VerdictChoice> choice() {
    return Optional.ofNullable(choice);
  }

  @Override
  public void close() {
    matmul.close();
  }
}
