package dev.loupe.cuda;

import java.lang.foreign.MemorySegment;
import jcuda.Pointer;
import jcuda.driver.JCudaDriver;
import org.jspecify.annotations.Nullable;

/** What tests ask of the driver that {@link Gpu} and {@link Launch} do not offer. */
public final class RawDriver {
  private RawDriver() {}

  /** The buffer as a kernel's parameter. */
  public static Pointer parameter(DeviceBuffer buffer) {
    return Pointer.to(buffer.pointer());
  }

  /** Launches a kernel along x, by a plain launch; nothing is checked. */
  public static void launch(
      Gpu gpu, Kernel kernel, int blocks, int threads, int sharedBytes, Pointer parameters) {
    gpu.run(
        () ->
            gpu.check(
                JCudaDriver.cuLaunchKernel(
                    kernel.handle(),
                    blocks,
                    1,
                    1,
                    threads,
                    1,
                    1,
                    sharedBytes,
                    gpu.stream(),
                    parameters,
                    null),
                "launching " + kernel));
  }

  /** Likewise, by a launch whose blocks all run at once and may wait for each other. */
  public static void launchCooperatively(
      Gpu gpu, Kernel kernel, int blocks, int threads, int sharedBytes, Pointer parameters) {
    gpu.run(
        () ->
            gpu.check(
                JCudaDriver.cuLaunchCooperativeKernel(
                    kernel.handle(),
                    blocks,
                    1,
                    1,
                    threads,
                    1,
                    1,
                    sharedBytes,
                    gpu.stream(),
                    parameters),
                "launching " + kernel));
  }

  /** The allocation of the driver that holds an address, or null. */
  public static @Nullable MemorySegment allocation(long address) {
    DevicePointer start = new DevicePointer();
    long[] bytes = new long[1];
    int rc = JCudaDriver.cuMemGetAddressRange(start, bytes, new DevicePointer().plus(address));
    return rc != 0 ? null : MemorySegment.ofAddress(start.address()).reinterpret(bytes[0]);
  }
}
