package dev.loupe.cuda;

import dev.loupe.cuda.driver.CudaDriver;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.Parameter;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.util.Arrays;
import java.util.Optional;

/**
 * What the driver knows of a kernel's parameters: {@code cuFuncGetParamInfo}, since CUDA 12.4;
 * JCuda lacks it. A wrong list would have the driver read past the parameter block. That a kernel
 * has more than were declared cannot be asked without an error of the driver; the emulator, which
 * runs every kernel, refuses such a launch.
 */
final class KernelSignature {
  /**
   * {@code CUresult cuFuncGetParamInfo(CUfunction, size_t index, size_t* offset, size_t* size)}.
   */
  private static final Optional<MethodHandle> PARAM_INFO =
      CudaDriver.function(
          "cuFuncGetParamInfo",
          FunctionDescriptor.of(
              ValueLayout.JAVA_INT,
              ValueLayout.JAVA_LONG,
              ValueLayout.JAVA_LONG,
              ValueLayout.ADDRESS,
              ValueLayout.ADDRESS));

  private KernelSignature() {}

  /** Throws if the kernel has other parameters than {@code declared}; on the GPU's thread. */
  static void check(Kernel kernel, Parameter[] declared) {
    if (PARAM_INFO.isEmpty()) {
      return;
    }
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment offset = arena.allocate(ValueLayout.JAVA_LONG);
      MemorySegment size = arena.allocate(ValueLayout.JAVA_LONG);
      for (int i = 0; i < declared.length; i++) {
        int rc =
            (int) PARAM_INFO.get().invokeExact(kernel.handle().address(), (long) i, offset, size);
        if (rc != 0) {
          throw new GpuException(
              "%s: parameter %d is declared in %s, and the kernel has none: %s"
                  .formatted(
                      kernel.name(), i, Arrays.toString(declared), DriverFailures.describe(rc)));
        }
        long actual = size.get(ValueLayout.JAVA_LONG, 0);
        if (actual != declared[i].bytes()) {
          throw new GpuException(
              "%s: parameter %d has %d bytes, and is declared with %d in %s"
                  .formatted(
                      kernel.name(), i, actual, declared[i].bytes(), Arrays.toString(declared)));
        }
      }
    } catch (GpuException e) {
      throw e;
    } catch (Throwable e) { // declared by every native call
      throw new IllegalStateException("cuFuncGetParamInfo", e);
    }
  }
}
