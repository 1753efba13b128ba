package dev.loupe.ops.cuda;

import dev.loupe.cuda.Cublas;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.DeviceScratch;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.kernels.CublasLinear;
import dev.loupe.cuda.kernels.GemvKernels;
import dev.loupe.cuda.kernels.LinearCall;
import dev.loupe.cuda.kernels.LinearEpilogue;
import dev.loupe.cuda.kernels.LinearKernels;
import dev.loupe.cuda.kernels.LinearMap;
import dev.loupe.cuda.kernels.WeightKernels;
import dev.loupe.cuda.selftest.KernelVerdicts;
import dev.loupe.cuda.selftest.VerdictChoice;
import dev.loupe.ops.Gemm;
import dev.loupe.ops.Weight;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * Matrix products with weights: which kernel serves how many rows, or cuBLAS. Launches are prepared
 * once for the buffers that a session multiplies.
 */
final class CudaMatmul implements AutoCloseable {
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

  private final Gemm gemm;
  private final LinearKernels linear;
  private final GemvKernels gemv;
  private final WeightKernels conversion;
  private final @Nullable CublasLinear cublas;
  private final DeviceScratch wideWeight; // of the widest int8 matrix so far
  private @Nullable VerdictChoice choice; // null: every kernel is trusted

  /**
   * @param gemm what multiplies the rows of a prompt
   * @param verdicts on the card's kernels; null if all are trusted
   * @param activations what the activations of a prompt are
   * @throws GpuException if cuBLAS is asked for and not there, or multiplies wrongly
   */
  CudaMatmul(Gpu gpu, Gemm gemm, @Nullable KernelVerdicts verdicts, Element activations) {
    this.gemm = gemm;
    linear = new LinearKernels(gpu);
    gemv = new GemvKernels(gpu);
    conversion = new WeightKernels(gpu);
    wideWeight = new DeviceScratch(gpu, activations);
    cublas = cublas(gpu, gemm, verdicts, activations);
  }

  private static @Nullable CublasLinear cublas(
      Gpu gpu, Gemm gemm, @Nullable KernelVerdicts verdicts, Element activations) {
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

  /** cuBLAS, if it may serve. */
  Optional<CublasLinear> cublas() {
    return Optional.ofNullable(cublas);
  }

  /** From now on, what decides where more than one kernel could serve. */
  void use(VerdictChoice decides) {
    choice = decides;
  }

  /**
   * Multiplies.
   *
   * @param input [rows, in]
   * @param norm by which its rows are normalised first; not null only if {@link #takesNorm}
   * @param epilogue what becomes of the product
   * @param session keeps the launch that is prepared here
   * @param recorded whether the launch may be part of a recorded step
   * @param out address of what the epilogue writes
   */
  void multiply(
      LinearMap map,
      DeviceBuffer input,
      GemvKernels.@Nullable InputNorm norm,
      LinearEpilogue epilogue,
      CudaSession session,
      boolean recorded,
      long out,
      int rows) {
    Optional<Variant> streaming = streaming(map, input.element(), rows);
    if (streaming.isEmpty() && map.scales() != null) {
      widened(map, input, epilogue, rows).run(rows);
      return;
    }
    // a recorded step would hold what cuBLAS decides for itself
    CublasLinear library = recorded ? null : library(map, input, rows);
    Variant own = library == null ? streaming.orElseGet(() -> linear.variantFor(map, rows)) : null;
    List<Object> key =
        List.of(
            map.weight().address(),
            input.address(),
            norm == null ? 0L : norm.gamma().address(),
            out,
            own == null ? "cublas" : own,
            epilogue instanceof LinearEpilogue.QkvAppend append
                ? List.of(append.sequence().address(), append.cache())
                : List.of());
    session
        .call(
            key,
            () ->
                own == null
                    ? Objects.requireNonNull(library).prepare(map, input, epilogue)
                    : streaming.isPresent()
                        ? gemv.prepare(own, map, input, norm, epilogue)
                        : linear.prepare(own, map, input, epilogue))
        .run(rows);
  }

  /** Whether what multiplies so many f32 rows can normalise them itself. */
  boolean takesNorm(LinearMap map, int rows) {
    return streaming(map, Element.F32, rows)
        .filter(v -> GemvKernels.takesNorm(v, map.in()))
        .isPresent();
  }

  /** What streams the weights through a few rows in f32; empty for others, or if it can't. */
  private Optional<Variant> streaming(LinearMap map, Element input, int rows) {
    boolean few = rows <= GemvKernels.MAX_ROWS && input == Element.F32;
    return few ? gemv.variantFor(map, rows) : Optional.empty();
  }

  /** cuBLAS, for many rows. */
  private @Nullable CublasLinear library(LinearMap map, DeviceBuffer input, int rows) {
    boolean serves =
        cublas != null
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

  @Override
  public void close() {
    if (cublas != null) {
      cublas.close();
    }
  }
}
