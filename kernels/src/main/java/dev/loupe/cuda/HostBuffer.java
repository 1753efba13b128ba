package dev.loupe.cuda;

import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import jcuda.Pointer;
import jcuda.driver.JCudaDriver;
import org.jspecify.annotations.Nullable;

/**
 * Pinned host memory: the GPU copies to it and from it while the host goes on. What a copy brings
 * may be read, and what one takes may be overwritten, once a {@link CudaEvent} set after it was
 * reached.
 */
public final class HostBuffer implements AutoCloseable {
  /** JCuda's pointer, which tells its address. */
  private static final class Pinned extends Pointer {
    long address() {
      return getNativePointer();
    }
  }

  private final Gpu gpu;
  private final long bytes;
  private final Pinned pointer = new Pinned();
  private final Arena arena = Arena.ofShared();
  private final MemorySegment memory;
  private @Nullable DeviceBuffer mapped; // the same memory as kernels see it, once one asks
  private boolean freed;

  /**
   * @throws GpuException if the driver has no such memory
   */
  HostBuffer(Gpu gpu, long bytes) {
    this.gpu = gpu;
    this.bytes = bytes;
    gpu.check(
        JCudaDriver.cuMemHostAlloc(pointer, bytes, JCudaDriver.CU_MEMHOSTALLOC_DEVICEMAP),
        "pinning %s".formatted(Gpu.size(bytes)));
    memory = MemorySegment.ofAddress(pointer.address()).reinterpret(bytes, arena, null);
  }

  /** The memory; an IllegalStateException once it was freed. */
  public MemorySegment memory() {
    return memory;
  }

  /**
   * The same memory for kernels, which reach it over the bus: for small results that the host waits
   * for, in place of a copy. It ends with this.
   *
   * @return as many elements as it has whole ones
   * @throws IllegalArgumentException if it was freed
   */
  public DeviceBuffer onDevice(Element element) {
    return gpu.call(
        () -> {
          requireLive();
          DeviceBuffer there = mapped;
          if (there == null) {
            DevicePointer device = new DevicePointer();
            gpu.check(
                JCudaDriver.cuMemHostGetDevicePointer(device, pointer, 0),
                "asking where pinned memory is mapped");
            there = DeviceBuffer.mapped(gpu, bytes, device);
            mapped = there;
          }
          return there.as(element);
        });
  }

  /** Size in bytes. */
  public long bytes() {
    return bytes;
  }

  /**
   * Puts a copy of {@code count} elements of {@code from}, from its start, on the stream.
   *
   * @param at where the copy goes, in bytes from the start of this
   * @throws IllegalArgumentException if one of them was freed, or the copy does not fit
   */
  public void copyFrom(DeviceBuffer from, long count, long at) {
    long n = count * from.element().bytes();
    if (count < 0 || count > from.elements() || at < 0 || at > bytes - n) {
      throw new IllegalArgumentException(
          "cannot copy %d elements of %s to byte %d of %d".formatted(count, from, at, bytes));
    }
    gpu.run(
        () -> {
          from.requireLive();
          requireLive();
          gpu.check(
              JCudaDriver.cuMemcpyDtoHAsync(
                  pointer.withByteOffset(at), from.pointer(), n, gpu.stream()),
              "copying %d bytes of %s".formatted(n, from));
        });
  }

  /**
   * Puts a copy of the start of this on the stream, as {@code count} elements of {@code to} from
   * its start on.
   *
   * @throws IllegalArgumentException if one of them was freed, or the copy does not fit
   */
  public void copyTo(DeviceBuffer to, long count) {
    long n = count * to.element().bytes();
    if (count < 0 || count > to.elements() || n > bytes) {
      throw new IllegalArgumentException(
          "cannot copy %d elements from %d bytes to %s".formatted(count, bytes, to));
    }
    gpu.run(
        () -> {
          to.requireLive();
          requireLive();
          gpu.check(
              JCudaDriver.cuMemcpyHtoDAsync(to.pointer(), pointer, n, gpu.stream()),
              "copying %d bytes to %s".formatted(n, to));
        });
  }

  private void requireLive() {
    if (freed) {
      throw new IllegalArgumentException("pinned memory is used after it was freed");
    }
  }

  /** Frees the memory; the caller sees to it that no copy is under way. */
  @Override
  public void close() {
    if (gpu.isClosed()) {
      return;
    }
    gpu.run(() -> gpu.memory().free(this));
  }

  /** On the GPU's thread. */
  void free() {
    if (!freed) {
      freed = true;
      if (mapped != null) {
        mapped.ended();
      }
      arena.close();
      gpu.released(JCudaDriver.cuMemFreeHost(pointer), "freeing pinned memory");
    }
  }
}
