package dev.loupe.cuda;

import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.GpuMemoryException;
import dev.loupe.cuda.driver.KernelCompiler;
import jcuda.driver.CUresult;
import jcuda.driver.JCudaDriver;

/** What the driver's results mean for a GPU: which exception, and whether anything still works. */
final class DriverFailures {
  /** CUDA_ERROR_DEVICE_UNAVAILABLE, which JCuda does not name. */
  private static final int DEVICE_UNAVAILABLE = 46;

  private final Gpu gpu;
  private final LaunchLog launches;
  private volatile boolean cardFailed; // that error was not a kernel's
  private volatile boolean lost; // the context answers every call with the error of an earlier one

  DriverFailures(Gpu gpu, LaunchLog launches) {
    this.gpu = gpu;
    this.launches = launches;
  }

  /** True once an error has ended the context. */
  boolean isLost() {
    return lost;
  }

  /** True once the driver has reported an error that no kernel is to blame for. */
  boolean hasCardFailed() {
    return cardFailed;
  }

  /** From now on, nothing is reported of what is given back. */
  void lose() {
    lost = true;
  }

  /** Throws if {@code rc} is not success. */
  void check(int rc, String what) {
    if (rc != CUresult.CUDA_SUCCESS) {
      throw of(rc, what);
    }
  }

  /** Throws if {@code rc}, of giving something back, says more than that the context is lost. */
  void released(int rc, String what) {
    if (!lost) {
      check(rc, what);
    }
  }

  /** What to throw for result {@code rc} of {@code what}. */
  GpuException of(int rc, String what) {
    String message = "%s failed: %s".formatted(what, describe(rc));
    if (rc == CUresult.CUDA_ERROR_OUT_OF_MEMORY) {
      return new GpuMemoryException(message);
    }
    cardFailed |= isOfTheCard(rc);
    if (isSticky(rc)) {
      lost = true;
      boolean hasContext = gpu.context().isCreated();
      Launch last = launches.last();
      message +=
          hasContext
              ? "; the GPU must be closed" + (last == null ? "" : ", it last ran " + last)
              : "; no GPU can be used in this process any more";
      message += hasContext && last != null && blamesKernel(rc) ? gpu.choice().distrust() : "";
    }
    return new GpuException(message);
  }

  /** What the driver says of an error. */
  static String describe(int rc) {
    String[] text = new String[1];
    String[] name = new String[1];
    int known = JCudaDriver.cuGetErrorString(rc, text) | JCudaDriver.cuGetErrorName(rc, name);
    String described = known == 0 ? text[0] + " (" + name[0] + ")" : "error " + rc;
    return described + KernelCompiler.advice(rc);
  }

  /** True for the errors that end a context: those of a kernel, and of a card that is lost. */
  private static boolean isSticky(int rc) {
    return switch (rc) {
      case CUresult.CUDA_ERROR_ILLEGAL_ADDRESS,
          CUresult.CUDA_ERROR_LAUNCH_TIMEOUT,
          CUresult.CUDA_ERROR_ASSERT,
          CUresult.CUDA_ERROR_HARDWARE_STACK_ERROR,
          CUresult.CUDA_ERROR_ILLEGAL_INSTRUCTION,
          CUresult.CUDA_ERROR_MISALIGNED_ADDRESS,
          CUresult.CUDA_ERROR_INVALID_ADDRESS_SPACE,
          CUresult.CUDA_ERROR_INVALID_PC,
          CUresult.CUDA_ERROR_LAUNCH_FAILED,
          CUresult.CUDA_ERROR_ECC_UNCORRECTABLE,
          DEVICE_UNAVAILABLE,
          CUresult.CUDA_ERROR_UNKNOWN ->
          true;
      default -> false;
    };
  }

  /** True for errors that a kernel brings about; CUDA_ERROR_UNKNOWN says nothing of the cause. */
  private static boolean blamesKernel(int rc) {
    return isSticky(rc) && !isOfTheCard(rc) && rc != CUresult.CUDA_ERROR_UNKNOWN;
  }

  /** True for errors that no kernel brings about: the card, its memory or its driver did. */
  private static boolean isOfTheCard(int rc) {
    return switch (rc) {
      case DEVICE_UNAVAILABLE,
          CUresult.CUDA_ERROR_NO_DEVICE,
          CUresult.CUDA_ERROR_INVALID_DEVICE,
          CUresult.CUDA_ERROR_ECC_UNCORRECTABLE,
          CUresult.CUDA_ERROR_NVLINK_UNCORRECTABLE,
          CUresult.CUDA_ERROR_NOT_INITIALIZED,
          CUresult.CUDA_ERROR_DEINITIALIZED,
          CUresult.CUDA_ERROR_INVALID_CONTEXT,
          CUresult.CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
          CUresult.CUDA_ERROR_OUT_OF_MEMORY ->
          true;
      default -> false;
    };
  }
}
