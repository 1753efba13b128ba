package dev.loupe.cuda;

import dev.loupe.cuda.driver.EarlyLaunch;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.HostPointer;
import dev.loupe.cuda.driver.KernelChoice;
import dev.loupe.cuda.driver.LaunchResources;
import dev.loupe.cuda.driver.Parameter;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;
import jcuda.driver.JCudaDriver;
import org.jspecify.annotations.Nullable;

/**
 * One place that launches a kernel: its parameters lie in a block that is made once and reused, so
 * a launch allocates nothing.
 *
 * <pre>
 *   block:  | address of value 0 | address of value 1 | ... | null | value 0 | value 1 | ... |
 *             8 bytes each, what cuLaunchKernel takes                  8 bytes each
 * </pre>
 *
 * <p>Not for two threads at once: {@code set} and {@code run} of one launch belong together.
 */
public final class Launch {
  private static final int SLOT = 8;
  private static final int MAX_BLOCK = 1024;
  private static final int MAX_GRID_YZ = 65_535;

  private final Gpu gpu;
  private final Kernel kernel;
  private final Parameter[] parameters;
  private final MemorySegment block;
  private final HostPointer blockPointer;
  private final @Nullable DeviceBuffer[] buffers;
  private final boolean[] isSet;
  private final Runnable put = this::put; // made once: a new one for each launch would be garbage

  private @Nullable EarlyLaunch early; // of a kernel that waits for the one before it
  private int gridX;
  private int gridY;
  private int gridZ;
  private int blockX;
  private int blockY;
  private int sharedBytes;

  /**
   * @param parameters what the kernel expects, in order
   * @throws GpuException if the driver knows better what the kernel expects
   */
  public Launch(Kernel kernel, Parameter... parameters) {
    int n = parameters.length;
    this.gpu = kernel.gpu();
    this.kernel = kernel;
    this.parameters = parameters.clone();
    this.buffers = new DeviceBuffer[n];
    this.isSet = new boolean[n];
    this.block = Arena.ofAuto().allocate((2L * n + 1) * SLOT, SLOT);
    this.blockPointer = new HostPointer(block.address());
    for (int i = 0; i < n; i++) {
      long value = block.address() + (long) (n + 1 + i) * SLOT;
      block.set(ValueLayout.JAVA_LONG, (long) i * SLOT, value);
    }
    gpu.run(() -> KernelSignature.check(kernel, this.parameters));
  }

  /** Sets parameter {@code i}, a pointer. */
  public Launch set(int i, DeviceBuffer buffer) {
    long at = slot(i, Parameter.POINTER);
    isSet[i] = false; // until the buffer has passed
    if (buffer == null) { // from callers that no checker looks at
      throw new IllegalArgumentException("%s: buffer %d is null".formatted(kernel.name(), i));
    }
    if (buffer.gpu() != gpu) {
      throw new IllegalArgumentException(
          "%s: buffer %d belongs to another opened GPU".formatted(kernel.name(), i));
    }
    block.set(ValueLayout.JAVA_LONG, at, buffer.address());
    buffers[i] = buffer;
    isSet[i] = true;
    return this;
  }

  /** Sets parameter {@code i}, a pointer, to null: an optional argument left out. */
  public Launch setNull(int i) {
    block.set(ValueLayout.JAVA_LONG, slot(i, Parameter.POINTER), 0);
    buffers[i] = null;
    return this;
  }

  /** Sets parameter {@code i}, an int. */
  public Launch set(int i, int value) {
    block.set(ValueLayout.JAVA_INT, slot(i, Parameter.INT), value);
    return this;
  }

  /** Sets parameter {@code i}, a long. */
  public Launch set(int i, long value) {
    block.set(ValueLayout.JAVA_LONG, slot(i, Parameter.LONG), value);
    return this;
  }

  /** Sets parameter {@code i}, a float. */
  public Launch set(int i, float value) {
    block.set(ValueLayout.JAVA_FLOAT, slot(i, Parameter.FLOAT), value);
    return this;
  }

  /** Where the value of parameter {@code i} lies in the block. */
  private long slot(int i, Parameter kind) {
    if (i < 0 || i >= parameters.length || parameters[i] != kind) {
      throw new IllegalArgumentException(
          "%s: parameter %d set as %s, it takes %s"
              .formatted(kernel.name(), i, kind, Arrays.toString(parameters)));
    }
    isSet[i] = true;
    return (long) (parameters.length + 1 + i) * SLOT;
  }

  /**
   * Tells that the kernel waits for the one before it on the stream, with {@code wait_for_previous}
   * of gpu.cuh, before it touches what other kernels write. It may then start while that one runs,
   * where {@link KernelChoice#startsEarly} allows it.
   */
  public Launch waits() {
    boolean can =
        EarlyLaunch.isKnown(gpu.computeCapability(), gpu.driverVersion())
            && EarlyLaunch.canWait(kernel.architecture());
    early = can ? new EarlyLaunch() : null;
    return this;
  }

  /**
   * Puts the kernel on the GPU's stream; it runs after all that was put there before. That it fails
   * while it runs shows in a later call that waits.
   *
   * @param sharedBytes dynamic shared memory of a block, up to {@link Gpu#maxSharedBytes}
   * @throws IllegalArgumentException if a size is out of the device's limits, a parameter is not
   *     set, or a buffer was freed
   * @throws GpuException if the GPU was closed, or the driver refuses the launch
   */
  public void run(int gridX, int gridY, int gridZ, int blockX, int blockY, int sharedBytes) {
    this.gridX = gridX;
    this.gridY = gridY;
    this.gridZ = gridZ;
    this.blockX = blockX;
    this.blockY = blockY;
    this.sharedBytes = sharedBytes;
    gpu.runPrepared(put);
  }

  private void put() {
    gpu.requireOpen();
    requireReady();
    requireLimits();
    kernel.allowShared(sharedBytes);
    gpu.launches().launched(this);
    int rc = early != null && gpu.choice().startsEarly() ? putEarly(early) : putAfter();
    if (rc != 0) {
      throw gpu.failure(rc, "launching " + this);
    }
  }

  private int putAfter() {
    return JCudaDriver.cuLaunchKernel(
        kernel.handle(),
        gridX,
        gridY,
        gridZ,
        blockX,
        blockY,
        1,
        sharedBytes,
        gpu.stream(),
        blockPointer,
        null);
  }

  private int putEarly(EarlyLaunch launch) {
    launch.shape(gridX, gridY, gridZ, blockX, blockY, sharedBytes);
    return launch.run(kernel.handle().address(), gpu.stream().address(), block.address());
  }

  private void requireReady() {
    for (int i = 0; i < parameters.length; i++) {
      if (!isSet[i]) {
        throw new IllegalArgumentException(
            "%s: parameter %d is not set".formatted(kernel.name(), i));
      }
      DeviceBuffer buffer = buffers[i];
      if (buffer != null && !buffer.isLive()) {
        throw new IllegalArgumentException(
            "%s: buffer %d (%s) was freed".formatted(kernel.name(), i, buffer));
      }
    }
  }

  private void requireLimits() {
    boolean grid =
        gridX >= 1 && gridY >= 1 && gridZ >= 1 && gridY <= MAX_GRID_YZ && gridZ <= MAX_GRID_YZ;
    boolean threads =
        blockX >= 1
            && blockY >= 1
            && blockX <= MAX_BLOCK
            && blockY <= MAX_BLOCK
            && blockX * blockY <= kernel.maxThreads();
    int mostShared = gpu.maxSharedBytes() - kernel.staticSharedBytes();
    boolean shared = sharedBytes >= 0 && sharedBytes <= mostShared;
    if (!grid || !threads || !shared) {
      throw new IllegalArgumentException(
          "cannot launch %s: grids go to 2147483647 x 65535 x 65535, its blocks to %d threads, and"
                  .formatted(this, kernel.maxThreads())
              + " shared memory on this GPU to %d bytes".formatted(mostShared));
    }
  }

  /** What the launch that was put on the stream last takes; on the GPU's thread. */
  LaunchResources resources() {
    int threads = blockX * blockY;
    int warps = Math.ceilDiv(threads, 32);
    return new LaunchResources(
        kernel.name(),
        kernel.registers(),
        kernel.staticSharedBytes() + sharedBytes,
        threads,
        (long) gridX * gridY * gridZ,
        kernel.residentBlocks(threads, sharedBytes) * warps / (double) gpu.context().maxWarps());
  }

  @Override
  public String toString() {
    return "%s with grid %d x %d x %d, block %d x %d, %d bytes of shared memory"
        .formatted(kernel.name(), gridX, gridY, gridZ, blockX, blockY, sharedBytes);
  }
}
