package dev.loupe.bench.kernel;

import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.kernels.AttentionKernels;
import dev.loupe.cuda.kernels.CacheShape;
import dev.loupe.cuda.kernels.GemvKernels;
import dev.loupe.cuda.kernels.Int8Weights;
import dev.loupe.cuda.kernels.LayerNormKernels;
import dev.loupe.cuda.kernels.LinearKernels;
import dev.loupe.ops.Precision;

/**
 * A row of the catalogue in one precision.
 *
 * @param threads of a block; 0 for those that it chooses
 * @param unfit why it takes no shape at all; empty if it does
 */
record CudaCandidate(
    CudaDevice device, Variant variant, Precision precision, int threads, String unfit)
    implements Candidate {
  /** Family of the row that stands for cuBLAS. */
  static final String CUBLAS = "cublas";

  private static final String GEMV = "gemv"; // its best version is called by the family's name

  @Override
  public String name() {
    String name = variant.name();
    if (variant.family().equals(GEMV)) {
      name = variant.isPlain() ? GEMV + "_" + name : GEMV;
    }
    return threads == 0 ? name : name + "@" + threads;
  }

  @Override
  public String idea() {
    return threads == 0 ? variant.idea() : "blocks of %d threads".formatted(threads);
  }

  /** Of weights, or where there are none of activations. */
  Element element() {
    return CudaDevice.element(precision);
  }

  /** Of activations: the kernels of a decoding step take f32. */
  private Element activations() {
    return variant.family().equals(GEMV) ? Element.F32 : element();
  }

  /** Keys of one layer. */
  static CacheShape cache(Shape shape) {
    return new CacheShape(1, shape.size("H"), shape.size("T"), shape.size("D"));
  }

  @Override
  public String refuses(Shape shape) {
    Gpu gpu = device.gpu();
    if (!unfit.isEmpty()) {
      return unfit;
    }
    if (!variant.runsOn(gpu.computeCapability())) {
      return "needs compute capability %s, this card has %.1f"
          .formatted(variant.computeCapabilities(), gpu.computeCapability() / 10.0);
    }
    if (threads > 0) {
      int most = gpu.kernel(variant.family(), variant.kernel(element())).maxThreads();
      if (threads > most) {
        return "compiled for blocks of up to %d threads".formatted(most);
      }
    }
    return switch (variant.family()) {
      case "attention" -> attentionRefuses(gpu, shape);
      case "attention_map", "attention_decode" -> headSizeRefused(shape);
      case "linear" -> new LinearKernels(gpu).reason(variant, element(), shape.size("K"));
      case GEMV ->
          shape.size("M") > GemvKernels.MAX_ROWS
              ? "takes 1 to %d rows".formatted(GemvKernels.MAX_ROWS)
              : GemvKernels.reason(variant, element(), shape.size("K"));
      case "layernorm" -> new LayerNormKernels(gpu).reason(variant, shape.size("C"));
      default -> "";
    };
  }

  private String attentionRefuses(Gpu gpu, Shape shape) {
    String refused = headSizeRefused(shape);
    if (!refused.isEmpty()) {
      return refused;
    }
    try (AttentionKernels kernels = new AttentionKernels(gpu, cache(shape), element())) {
      return kernels.reason(variant);
    }
  }

  private static String headSizeRefused(Shape shape) {
    try {
      cache(shape);
      return "";
    } catch (IllegalArgumentException e) {
      return String.valueOf(e.getMessage());
    }
  }

  @Override
  public Problem.Work work(Shape shape) {
    double weightBytes = element().bytes();
    if (precision == Precision.INT8) {
      int inputs = shape.size("K");
      weightBytes +=
          (double) Float.BYTES * Math.ceilDiv(inputs, Int8Weights.GROUP) / inputs; // scales
    }
    return Problem.Work.of(shape, activations().bytes(), weightBytes);
  }

  @Override
  public Run prepare(Problem problem) {
    CudaRun run = new CudaRun(device.gpu(), device.timer());
    try {
      return CudaRun.failing(
          device.gpu(),
          () -> {
            new CudaSetUp(device, this, problem, run).setUp();
            return run;
          });
    } catch (RuntimeException | OutOfMemoryError e) {
      run.close();
      throw e;
    }
  }
}
