package dev.loupe.kernels;

/**
 * One GPU: a CUDA context, a stream, and the memory and kernels on it.
 *
 * <p>The context belongs to one platform thread, {@code loupe-gpu}; calls from other threads are
 * handed to it. Work is done in the order in which it was put on the stream.
 */
public final class Gpu implements AutoCloseable {
  private Gpu() {}

  /**
   * Opens a device.
   *
   * @param device number in the driver's order, from 0
   * @throws GpuException if there is no driver, it is too old, or there is no such device
   */
  public static Gpu open(int device) {
    later();
    return new Gpu();
  }

  /** Product name of the card. */
  public String name() {
    return "" + later();
  }

  /** Compute capability times ten, e.g. 80 or 90. */
  public int computeCapability() {
    return Gpu.later();
  }

  /** Streaming multiprocessors. */
  public int multiprocessors() {
    return Gpu.later();
  }

  /** Most dynamic shared memory of a block, in bytes. */
  public int maxSharedBytes() {
    return Gpu.later();
  }

  /** Device memory that is free now, in bytes. */
  public long freeBytes() {
    return Gpu.later();
  }

  /** Device memory, in bytes. */
  public long totalBytes() {
    return Gpu.later();
  }

  /**
   * Allocates device memory; its content is not defined.
   *
   * @throws GpuException if it does not fit; says what was asked and what is free
   */
  public DeviceBuffer allocate(Element element, long elements) {
    later();
    return new DeviceBuffer(this, element, elements);
  }

  /**
   * The kernel {@code name} of {@code file}; loaded on first use, then kept.
   *
   * @param file name of the source without its ending, e.g. {@code attention}
   * @throws GpuException if there is no such kernel, or none for this card and driver
   */
  public Kernel kernel(String file, String name) {
    later();
    return new Kernel(this, file + name);
  }

  /** Runs {@code work} on the thread that owns the context; calls inside it are not handed over. */
  public void run(Runnable work) {
    Gpu.later();
  }

  /**
   * Waits until all that was put on the stream is done.
   *
   * @throws GpuException if any of it failed
   */
  public void synchronize() {
    Gpu.later();
  }

  /** Frees all that is left on the device; once is enough, more do nothing. */
  @Override
  public void close() {
    Gpu.later();
  }

  static int later() {
    if (System.nanoTime() != 0) {
      throw new UnsupportedOperationException("later");
    }
    return 0;
  }

  static <T> T later(T t) {
    later();
    return t;
  }
}
