package dev.loupe.cuda;

import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.JCudaLibrary;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.util.Optional;
import jcuda.jcublas.JCublas2;
import jcuda.jcublas.cublasStatus;

/**
 * NVIDIA's matrix product, where its library is installed; Loupe's own kernels do without.
 *
 * <p>Calls go on the GPU's stream. May be used from any thread.
 */
public abstract sealed class Cublas implements AutoCloseable permits Cublas12, Cublas13 {
  // library_types.h, cublas_api.h
  static final int OP_N = 0;
  static final int OP_T = 1;
  static final int COMPUTE_32F = 68; // f32 sums, and f32 products too: no TF32
  static final int GEMM_DEFAULT = -1;

  final Gpu gpu;
  private final MemorySegment scalars = Arena.ofAuto().allocateFrom(ValueLayout.JAVA_FLOAT, 1f, 0f);
  private boolean closed; // the owning thread's

  Cublas(Gpu gpu) {
    this.gpu = gpu;
  }

  /**
   * Opens the library that this machine has: cuBLAS 12 through JCuda, else cuBLAS 13, for which
   * there is no JCuda, by its C functions.
   *
   * @return empty if there is neither
   * @throws GpuException if there is one and it does not start, or multiplies wrongly
   */
  public static Optional<Cublas> open(Gpu gpu) {
    Optional<Cublas> cublas;
    if (library(12).isPresent()) {
      JCudaLibrary.load(JCublas2.class, "JCublas2");
      cublas = Optional.of(gpu.call(() -> new Cublas12(gpu)));
    } else {
      cublas = library(13).map(library -> gpu.call(() -> new Cublas13(gpu, library)));
    }
    cublas.ifPresent(Cublas::tryOut);
    return cublas;
  }

  /** A library that starts may still lack its kernels for the card: seen here, not in a prompt. */
  private void tryOut() {
    try (DeviceBuffer x = gpu.allocate(Element.F16, 8);
        DeviceBuffer y = gpu.allocate(Element.F32, 1)) {
      x.upload(new float[] {1, 2, 3, 4, 5, 6, 7, 8});
      linear(x, x, y, 1, 8, 1, false);
      float[] product = new float[1];
      y.download(product);
      if (product[0] != 204) {
        throw new GpuException(
            "cuBLAS multiplies wrongly: 1 + 4 + 9 .. 64 is %s, not 204".formatted(product[0]));
      }
    } catch (GpuException e) {
      try {
        close();
      } catch (GpuException closing) {
        e.addSuppressed(closing);
      }
      throw e;
    }
  }

  static Optional<SymbolLookup> library(int version) {
    boolean windows = System.getProperty("os.name", "").startsWith("Windows");
    String name = (windows ? "cublas64_%d.dll" : "libcublas.so.%d").formatted(version);
    try {
      return Optional.of(SymbolLookup.libraryLookup(name, Arena.global()));
    } catch (IllegalArgumentException e) {
      return Optional.empty();
    }
  }

  /** For people: what is looked for, and where. */
  public static String searched() {
    return "libcublas.so.12 and libcublas.so.13, where the loader looks: LD_LIBRARY_PATH, ldconfig";
  }

  /** The library's version, e.g. 120602 for 12.6.2. */
  public abstract int version();

  /**
   * y = x . W^T, or y += x . W^T; sums in f32.
   *
   * @param x [rows, in] F32, F16 or BF16
   * @param weight [out, in] of x's element
   * @param y [rows, out] of x's element or F32
   * @param add whether to add to y; else its content does not matter
   * @throws IllegalArgumentException if a buffer is too small, freed, or of another element or GPU
   */
  public void linear(
      DeviceBuffer x, DeviceBuffer weight, DeviceBuffer y, int rows, int in, int out, boolean add) {
    if (rows < 1 || in < 1 || out < 1) {
      throw new IllegalArgumentException(
          "cuBLAS: rows %d, in %d, out %d: not all positive".formatted(rows, in, out));
    }
    if (!x.element().isFloat()) {
      throw new IllegalArgumentException(
          "cuBLAS: x holds %s, not f32, f16 or bf16".formatted(x.element().suffix()));
    }
    Element result = y.element() == Element.F32 ? Element.F32 : x.element();
    gpu.run(
        () -> {
          BufferCheck check = new BufferCheck("cuBLAS", gpu);
          check.holds("x", x, x.element(), (long) rows * in);
          check.holds("weight", weight, x.element(), (long) out * in);
          check.holds("y", y, result, (long) rows * out);
          if (closed) {
            throw new GpuException("cuBLAS was closed");
          }
          // Column by column, as cuBLAS reads, y is [out, rows] = (weight [in, out])^T . x [in,
          // rows].
          check(
              gemm(
                  out,
                  rows,
                  in,
                  scalars,
                  new Matrix(weight, in),
                  new Matrix(x, in),
                  scalars.asSlice(add ? 0 : Float.BYTES),
                  new Matrix(y, out)),
              "a product of [%d, %d] and [%d, %d]^T in %s"
                  .formatted(rows, in, out, in, x.element().suffix()));
        });
  }

  /**
   * A matrix as cuBLAS sees it.
   *
   * @param stride elements from a column to the next
   */
  record Matrix(DeviceBuffer buffer, int stride) {
    /** Its {@code cudaDataType}. */
    int type() {
      return switch (buffer.element()) {
        case F32 -> 0; // CUDA_R_32F
        case F16 -> 2; // CUDA_R_16F
        case BF16 -> 14; // CUDA_R_16BF
        case I8, I32 -> throw new IllegalStateException(buffer.toString());
      };
    }
  }

  /** c [m, n] = alpha a^T b + beta c, on the owning thread; the library's status. */
  abstract int gemm(
      int m, int n, int k, MemorySegment alpha, Matrix a, Matrix b, MemorySegment beta, Matrix c);

  abstract int destroy();

  static void check(int status, String what) {
    if (status != 0) {
      throw new GpuException(
          "cuBLAS failed at %s: %s".formatted(what, cublasStatus.stringFor(status)));
    }
  }

  /** Frees what the library holds on the GPU; once is enough, more do nothing. */
  @Override
  public void close() {
    if (gpu.isClosed()) {
      return;
    }
    gpu.run(
        () -> {
          if (!closed) {
            closed = true;
            check(destroy(), "closing");
          }
        });
  }
}
