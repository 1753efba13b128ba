package dev.loupe.cuda;

import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuMemoryException;
import java.util.Random;
import java.util.function.DoubleSupplier;

/**
 * Times launches with cold caches. Before each, the GPU copies more than its cache holds: weights
 * of a real step are not in the cache either, and while it copies the host puts the launch and the
 * events on the stream, so that the time is the GPU's alone. A launch that does next to nothing
 * still takes the time between two events.
 */
public final class ColdTimer implements AutoCloseable {
  /** A good amount to copy: caches go to 126 MB (B200). */
  public static final long USUAL_BYTES = 512L << 20;

  private static final double ENOUGH_MICROSECONDS = 150_000;

  private final Gpu gpu;
  private final DeviceBuffer from;
  private final DeviceBuffer to;

  /**
   * Takes memory to copy.
   *
   * @param bytes twice of which are taken; less if not a quarter of this is free
   * @throws GpuMemoryException if there is no room
   */
  public ColdTimer(Gpu gpu, long bytes) {
    this.gpu = gpu;
    long n = Math.min(bytes, gpu.freeBytes() / 4) / Float.BYTES;
    from = gpu.allocate(Element.F32, n);
    try {
      to = gpu.allocate(Element.F32, n);
    } catch (RuntimeException e) {
      from.close();
      throw e;
    }
    fillRandom(from, new Random(1));
  }

  /**
   * Fills an F32, F16 or BF16 buffer with random numbers between -1 and 1: zeros would cost the
   * card less power than a model does, and so less of its clock. They repeat after a million.
   */
  public static void fillRandom(DeviceBuffer buffer, Random random) {
    float[] some = new float[(int) Math.min(buffer.elements(), 1 << 20)];
    for (int i = 0; i < some.length; i++) {
      some[i] = random.nextFloat(-1, 1);
    }
    buffer.upload(some);
    long n;
    for (long filled = some.length; filled < buffer.elements(); filled += n) {
      n = Math.min(filled, buffer.elements() - filled);
      buffer.slice(filled, n).copyFrom(buffer, n);
    }
  }

  /** Microseconds of what {@code work} puts on the stream. */
  public double microseconds(Runnable work) {
    double[] us = new double[1];
    gpu.run(
        () -> {
          to.copyFrom(from, from.elements());
          us[0] = 1e3 * gpu.milliseconds(work);
        });
    return us[0];
  }

  /** Bytes of a copy, each of which is read and written. */
  public long copiedBytes() {
    return from.bytes();
  }

  /** Microseconds of a copy. */
  public double copyMicroseconds() {
    return 1e3 * gpu.milliseconds(() -> to.copyFrom(from, from.elements()));
  }

  /** Bytes a second that the GPU reads and writes at best while it copies. */
  public double copyBytesPerSecond() {
    return 2e6 * copiedBytes() / best(this::copyMicroseconds);
  }

  /** The least of some measurements: 3 to 30, up to 150 ms in all, after one to warm up. */
  public static double best(DoubleSupplier microseconds) {
    double best = microseconds.getAsDouble();
    double total = 0;
    for (int i = 0; i < 3 || (i < 30 && total < ENOUGH_MICROSECONDS); i++) {
      double time = microseconds.getAsDouble();
      best = Math.min(best, time);
      total += time;
    }
    return best;
  }

  /** Gives the memory back. */
  @Override
  public void close() {
    from.close();
    to.close();
  }
}
