package dev.loupe.kernels;

import java.lang.foreign.MemorySegment;

/**
 * A row of equal elements in device memory.
 *
 * <p>Host values are f32 or int; f16 and bf16 are converted on the host, rounding to nearest, ties
 * to even. All methods may be called from any thread.
 */
public final class DeviceBuffer implements AutoCloseable {
  private final Gpu gpu;
  private final Element element;
  private final long elements;

  DeviceBuffer(Gpu gpu, Element element, long elements) {
    this.gpu = gpu;
    this.element = element;
    this.elements = elements;
  }

  /** The GPU whose memory this is. */
  public Gpu gpu() {
    return gpu;
  }

  /** What it holds. */
  public Element element() {
    return element;
  }

  /** How many. */
  public long elements() {
    return elements;
  }

  /** Size in bytes. */
  public long bytes() {
    return elements * element.bytes();
  }

  /**
   * Device address of the first element.
   *
   * @throws GpuException if it was freed
   */
  public long address() {
    return Gpu.later();
  }

  /** True until it, or the GPU, is closed. */
  public boolean isLive() {
    return Gpu.later() > 0;
  }

  /**
   * A view of {@code elements} from {@code from} on; ends with this buffer, closing it does
   * nothing.
   */
  public DeviceBuffer slice(long from, long elements) {
    return Gpu.later(this);
  }

  /** Writes {@code values} to the start, converting to f16 or bf16 where this holds that. */
  public void upload(float[] values) {
    Gpu.later();
  }

  /** Writes {@code values} to the start of an I32 buffer. */
  public void upload(int[] values) {
    Gpu.later();
  }

  /** Writes bytes to the start, as they are. */
  public void upload(MemorySegment bytes) {
    Gpu.later();
  }

  /** Reads {@code values.length} elements from the start, converting from f16 or bf16. */
  public void download(float[] values) {
    Gpu.later();
  }

  /** Reads {@code values.length} elements from the start of an I32 buffer. */
  public void download(int[] values) {
    Gpu.later();
  }

  /** Reads bytes from the start, as they are. */
  public void download(MemorySegment bytes) {
    Gpu.later();
  }

  /** Sets every byte; 0xff makes every f32, f16 and bf16 a NaN. */
  public void fill(byte value) {
    Gpu.later();
  }

  /** Frees the memory; once is enough, more do nothing. */
  @Override
  public void close() {
    Gpu.later();
  }
}
