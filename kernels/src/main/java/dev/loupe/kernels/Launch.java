package dev.loupe.kernels;

/**
 * One place that launches a kernel: its parameters lie in a block that is made once and reused, so
 * a launch allocates nothing.
 *
 * <p>Not for two threads at once: {@code set} and {@code run} of one launch belong together.
 */
public final class Launch {
  private final Kernel kernel;
  private final Parameter[] parameters;

  /**
   * @param parameters what the kernel expects, in order
   */
  public Launch(Kernel kernel, Parameter... parameters) {
    this.kernel = kernel;
    this.parameters = parameters.clone();
  }

  /** Sets parameter {@code i}, a pointer. */
  public Launch set(int i, DeviceBuffer buffer) {
    return Gpu.later(this);
  }

  /** Sets parameter {@code i}, a pointer, to null: an optional argument left out. */
  public Launch setNull(int i) {
    return Gpu.later(this);
  }

  /** Sets parameter {@code i}, an int. */
  public Launch set(int i, int value) {
    return Gpu.later(this);
  }

  /** Sets parameter {@code i}, a long. */
  public Launch set(int i, long value) {
    return Gpu.later(this);
  }

  /** Sets parameter {@code i}, a float. */
  public Launch set(int i, float value) {
    return Gpu.later(this);
  }

  /**
   * Puts the kernel on the GPU's stream; it runs after all that was put there before.
   *
   * @param sharedBytes dynamic shared memory of a block, up to {@link Gpu#maxSharedBytes}
   * @throws GpuException if a size is out of the device's limits, a parameter is not set, or a
   *     buffer was freed
   */
  public void run(int gridX, int gridY, int gridZ, int blockX, int blockY, int sharedBytes) {
    Gpu.later();
    throw new GpuException(kernel.name() + parameters.length);
  }
}
