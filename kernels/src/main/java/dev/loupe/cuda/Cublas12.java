package dev.loupe.cuda;

import dev.loupe.cuda.driver.HostPointer;
import java.lang.foreign.MemorySegment;
import jcuda.jcublas.JCublas2;
import jcuda.jcublas.cublasHandle;
import jcuda.runtime.cudaStream_t;

/** cuBLAS 12, through JCuda. */
final class Cublas12 extends Cublas {
  private final cublasHandle handle = new cublasHandle();
  private final int version;

  Cublas12(Gpu gpu) {
    super(gpu);
    JCublas2.setExceptionsEnabled(false);
    check(JCublas2.cublasCreate(handle), "starting");
    check(JCublas2.cublasSetStream(handle, new cudaStream_t(gpu.stream())), "setting the stream");
    int[] found = new int[1];
    check(JCublas2.cublasGetVersion(handle, found), "asking for its version");
    version = found[0];
  }

  @Override
  public int version() {
    return version;
  }

  @Override
  int gemm(
      int m, int n, int k, MemorySegment alpha, Matrix a, Matrix b, MemorySegment beta, Matrix c) {
    // not cublasGemmEx, which is the function of cuBLAS 10 and has no compute type
    return JCublas2.cublasGemmEx_new(
        handle,
        OP_T,
        OP_N,
        m,
        n,
        k,
        new HostPointer(alpha.address()),
        a.buffer().pointer(),
        a.type(),
        a.stride(),
        b.buffer().pointer(),
        b.type(),
        b.stride(),
        new HostPointer(beta.address()),
        c.buffer().pointer(),
        c.type(),
        c.stride(),
        COMPUTE_32F,
        GEMM_DEFAULT);
  }

  @Override
  int destroy() {
    return JCublas2.cublasDestroy(handle);
  }
}
