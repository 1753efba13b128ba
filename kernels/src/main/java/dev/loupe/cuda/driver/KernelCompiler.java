package dev.loupe.cuda.driver;

import jcuda.driver.CUresult;

/**
 * The compiler in the driver, which makes kernels for cards that the jar has no cubins for. That
 * can take seconds for each, and whoever waits should hear of it.
 */
public final class KernelCompiler {
  /** Hears of each kernel, on the thread of its GPU. */
  public interface Listener {
    /**
     * The driver is about to compile a kernel, or to find it among those that it has kept.
     *
     * @param kernel its name
     * @param number which one it is on this GPU, from 1
     * @param milliseconds what those before it took
     * @param kept whether the driver keeps what it compiles for the next process
     */
    void compiling(String kernel, int number, double milliseconds, boolean kept);

    /** The driver is through with it. */
    void compiled();
  }

  /** Hears of nothing. */
  public static final Listener NOBODY =
      new Listener() {
        @Override
        public void compiling(String kernel, int number, double milliseconds, boolean kept) {}

        @Override
        public void compiled() {}
      };

  private static volatile Listener listener = NOBODY;

  private KernelCompiler() {}

  /** Lets {@code listener}, and no other, hear of all kernels that are compiled from now on. */
  public static void listen(Listener listener) {
    KernelCompiler.listener = listener;
  }

  /** Who hears now of kernels that are compiled. */
  public static Listener listener() {
    return listener;
  }

  /** What can be done about result {@code rc} of a driver, as the end of a sentence, or nothing. */
  public static String advice(int rc) {
    return switch (rc) {
      case CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU,
          CUresult.CUDA_ERROR_INVALID_PTX,
          CUresult.CUDA_ERROR_UNSUPPORTED_PTX_VERSION ->
          ": update the driver, or run on the CPU";
      case CUresult.CUDA_ERROR_JIT_COMPILER_NOT_FOUND ->
          ": the driver's compiler, libnvidia-ptxjitcompiler, is not installed; install the whole"
              + " driver, or run on the CPU";
      default -> "";
    };
  }
}
