package dev.loupe.cuda;

import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuMemoryException;
import org.jspecify.annotations.Nullable;

/** Device memory that grows to what is asked of it and does not keep its content. */
public final class DeviceScratch implements AutoCloseable {
  private final Gpu gpu;
  private final Element element;
  private @Nullable DeviceBuffer buffer;

  /** Takes no memory yet. */
  public DeviceScratch(Gpu gpu, Element element) {
    this.gpu = gpu;
    this.element = element;
  }

  /**
   * A buffer of at least so many elements; it lives until more are asked for or this is closed.
   *
   * @throws GpuMemoryException if there is no room
   */
  public DeviceBuffer atLeast(long elements) {
    DeviceBuffer old = buffer;
    if (old != null && old.elements() >= elements) {
      return old;
    }
    if (old != null) {
      gpu.synchronize(); // earlier launches may still use it
    }
    close(); // before the larger one: there may be no room for both
    DeviceBuffer grown = gpu.allocate(element, elements);
    buffer = grown;
    return grown;
  }

  /** Frees the memory; a later call takes it anew. */
  @Override
  public void close() {
    DeviceBuffer b = buffer;
    buffer = null;
    if (b != null) {
      b.close();
    }
  }
}
