package dev.loupe.cuda;

import dev.loupe.cuda.driver.GpuException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;

/** cuBLAS 13, by its C functions (cublas_api.h); cuBLAS 12 has the same ones. */
final class Cublas13 extends Cublas {
  private static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT;
  private static final ValueLayout.OfLong DEVICE = ValueLayout.JAVA_LONG;
  private static final ValueLayout HOST = ValueLayout.ADDRESS;

  private final MethodHandle gemm;
  private final MethodHandle destroy;
  private final long handle; // cublasHandle_t
  private final int version;

  Cublas13(Gpu gpu, SymbolLookup library) {
    super(gpu);
    gemm =
        function(
            library,
            "cublasGemmEx",
            DEVICE,
            INT,
            INT,
            INT,
            INT,
            INT,
            HOST,
            DEVICE,
            INT,
            INT,
            DEVICE,
            INT,
            INT,
            HOST,
            DEVICE,
            INT,
            INT,
            INT,
            INT);
    destroy = function(library, "cublasDestroy_v2", DEVICE);
    MethodHandle create = function(library, "cublasCreate_v2", HOST);
    MethodHandle setStream = function(library, "cublasSetStream_v2", DEVICE, DEVICE);
    MethodHandle getVersion = function(library, "cublasGetVersion_v2", DEVICE, HOST);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.JAVA_LONG);
      check((int) create.invokeExact(out), "starting");
      handle = out.get(ValueLayout.JAVA_LONG, 0);
      check((int) setStream.invokeExact(handle, gpu.stream().address()), "setting the stream");
      check((int) getVersion.invokeExact(handle, out), "asking for its version");
      version = out.get(ValueLayout.JAVA_INT, 0);
    } catch (Throwable e) {
      throw unchecked(e);
    }
  }

  private static MethodHandle function(
      SymbolLookup library, String name, MemoryLayout... parameters) {
    MemorySegment symbol =
        library.find(name).orElseThrow(() -> new GpuException("the cuBLAS library has no " + name));
    return Linker.nativeLinker()
        .downcallHandle(symbol, FunctionDescriptor.of(ValueLayout.JAVA_INT, parameters));
  }

  @Override
  public int version() {
    return version;
  }

  @Override
  int gemm(
      int m, int n, int k, MemorySegment alpha, Matrix a, Matrix b, MemorySegment beta, Matrix c) {
    try {
      return (int)
          gemm.invokeExact(
              handle,
              OP_T,
              OP_N,
              m,
              n,
              k,
              alpha,
              a.buffer().address(),
              a.type(),
              a.stride(),
              b.buffer().address(),
              b.type(),
              b.stride(),
              beta,
              c.buffer().address(),
              c.type(),
              c.stride(),
              COMPUTE_32F,
              GEMM_DEFAULT);
    } catch (Throwable e) {
      throw unchecked(e);
    }
  }

  @Override
  int destroy() {
    try {
      return (int) destroy.invokeExact(handle);
    } catch (Throwable e) {
      throw unchecked(e);
    }
  }

  /** Native calls declare any exception, and throw none. */
  private static RuntimeException unchecked(Throwable thrown) {
    if (thrown instanceof RuntimeException e) {
      return e;
    }
    throw new IllegalStateException("a call of cuBLAS", thrown);
  }
}
