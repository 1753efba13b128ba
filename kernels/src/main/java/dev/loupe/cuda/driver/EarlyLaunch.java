package dev.loupe.cuda.driver;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.util.Optional;

/**
 * A launch that may start while the kernel before it on the stream still runs: programmatic
 * dependent launch (CUDA C++ Programming Guide), for kernels that wait for that kernel themselves.
 * In a recording it becomes a programmatic edge of the graph. {@code cuLaunchKernelEx}, which JCuda
 * lacks, is there since CUDA 11.8; recordings take such launches since 12.3.
 */
public final class EarlyLaunch {
  /** Oldest driver whose recordings take such launches. */
  private static final int MIN_DRIVER = 12_030;

  /** Lowest compute capability of cards that have them. */
  private static final int MIN_COMPUTE_CAPABILITY = 90;

  /** {@code CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION}. */
  private static final int PROGRAMMATIC = 6;

  // CUlaunchConfig: grid, block and bytes of shared memory in 7 ints, then
  private static final int STREAM = 32;
  private static final int ATTRIBUTES = 40;
  private static final int COUNT = 48;
  private static final int CONFIG_BYTES = 56;
  // CUlaunchAttribute: its id, then a union of 64 bytes
  private static final int VALUE = CONFIG_BYTES + 8;
  private static final int BYTES = VALUE + 64;

  /**
   * {@code CUresult cuLaunchKernelEx(const CUlaunchConfig*, CUfunction, void** parameters, void**
   * extra)}.
   */
  private static final Optional<MethodHandle> LAUNCH =
      CudaDriver.function(
          "cuLaunchKernelEx",
          FunctionDescriptor.of(
              ValueLayout.JAVA_INT,
              ValueLayout.JAVA_LONG,
              ValueLayout.JAVA_LONG,
              ValueLayout.JAVA_LONG,
              ValueLayout.JAVA_LONG));

  private final MemorySegment config = Arena.ofAuto().allocate(BYTES, Long.BYTES);

  /** Its parts are set before each launch. */
  public EarlyLaunch() {
    config.set(ValueLayout.JAVA_LONG, ATTRIBUTES, config.address() + CONFIG_BYTES);
    config.set(ValueLayout.JAVA_INT, COUNT, 1);
    config.set(ValueLayout.JAVA_INT, CONFIG_BYTES, PROGRAMMATIC);
    config.set(ValueLayout.JAVA_INT, VALUE, 1);
  }

  /**
   * Whether a card and a driver have such launches.
   *
   * @param computeCapability times ten
   * @param driverVersion as {@code cuDriverGetVersion} gives it, e.g. 12030
   */
  public static boolean isKnown(int computeCapability, int driverVersion) {
    return computeCapability >= MIN_COMPUTE_CAPABILITY
        && driverVersion >= MIN_DRIVER
        && LAUNCH.isPresent();
  }

  /** Whether a kernel that was compiled for {@code architecture}, times ten, can wait. */
  public static boolean canWait(int architecture) {
    return architecture >= MIN_COMPUTE_CAPABILITY;
  }

  /** Sets the grid, the block of one or two dimensions, and the bytes of shared memory. */
  public void shape(int gridX, int gridY, int gridZ, int blockX, int blockY, int sharedBytes) {
    int i = 0;
    for (int value : new int[] {gridX, gridY, gridZ, blockX, blockY, 1, sharedBytes}) {
      config.setAtIndex(ValueLayout.JAVA_INT, i++, value);
    }
  }

  /**
   * Puts the kernel on a stream.
   *
   * @param function handle of the kernel
   * @param stream handle of the stream
   * @param parameters address of what {@code cuLaunchKernel} takes
   * @return the driver's result
   */
  public int run(long function, long stream, long parameters) {
    config.set(ValueLayout.JAVA_LONG, STREAM, stream);
    try {
      return (int) LAUNCH.orElseThrow().invokeExact(config.address(), function, parameters, 0L);
    } catch (Throwable e) { // declared by every native call
      throw new IllegalStateException("cuLaunchKernelEx", e);
    }
  }
}
