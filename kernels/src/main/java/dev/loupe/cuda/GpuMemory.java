package dev.loupe.cuda;

import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuMemoryException;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.function.BooleanSupplier;
import jcuda.driver.CUresult;
import jcuda.driver.JCudaDriver;

/**
 * Device memory and pinned host memory of a GPU: allocated, and known until they are freed. Its
 * fields belong to the GPU's thread.
 */
final class GpuMemory {
  private static final Set<String> OWN = Set.of(Gpu.class.getName(), GpuMemory.class.getName());

  private final Gpu gpu;
  private final Set<DeviceBuffer> buffers = new LinkedHashSet<>();
  private final Set<HostBuffer> pinned = new LinkedHashSet<>();
  private final StagingBuffer staging = new StagingBuffer();
  private BooleanSupplier spare = () -> false;

  GpuMemory(Gpu gpu) {
    this.gpu = gpu;
  }

  /** As {@link Gpu#allocate} has it. */
  DeviceBuffer allocate(Element element, long elements) {
    if (elements <= 0 || elements > Long.MAX_VALUE / element.bytes()) {
      throw new IllegalArgumentException(
          "a buffer of %d %s cannot be allocated".formatted(elements, element.suffix()));
    }
    String site = site();
    return gpu.call(
        () -> {
          DevicePointer pointer = new DevicePointer();
          long bytes = elements * element.bytes();
          int rc = JCudaDriver.cuMemAlloc(pointer, bytes);
          while (rc == CUresult.CUDA_ERROR_OUT_OF_MEMORY && spare.getAsBoolean()) {
            rc = JCudaDriver.cuMemAlloc(pointer, bytes);
          }
          if (rc == CUresult.CUDA_ERROR_OUT_OF_MEMORY) {
            throw new GpuMemoryException(
                "out of GPU memory: %s for %d %s, and %s of %s are free on %s"
                    .formatted(
                        Gpu.size(bytes),
                        elements,
                        element.suffix(),
                        Gpu.size(freeBytes()),
                        Gpu.size(gpu.totalBytes()),
                        gpu.name()));
          }
          gpu.check(rc, "allocating " + Gpu.size(bytes));
          DeviceBuffer buffer = new DeviceBuffer(gpu, element, elements, pointer, site);
          buffers.add(buffer);
          return buffer;
        });
  }

  /** As {@link Gpu#whenShort} has it; on the GPU's thread. */
  void whenShort(BooleanSupplier spare) {
    this.spare = spare;
  }

  /** As {@link Gpu#pin} has it. */
  HostBuffer pin(long bytes) {
    if (bytes <= 0) {
      throw new IllegalArgumentException("%d bytes of pinned memory".formatted(bytes));
    }
    return gpu.call(
        () -> {
          while (true) {
            try {
              HostBuffer buffer = new HostBuffer(gpu, bytes);
              pinned.add(buffer);
              return buffer;
            } catch (GpuMemoryException e) {
              if (!spare.getAsBoolean()) {
                throw e;
              }
            }
          }
        });
  }

  /** Who allocates: the first frame outside the two classes that allocate. */
  private static String site() {
    return StackWalker.getInstance()
        .walk(frames -> frames.filter(f -> !OWN.contains(f.getClassName())).findFirst())
        .map(StackWalker.StackFrame::toStackTraceElement)
        .map(StackTraceElement::toString)
        .orElse("?");
  }

  /** On the GPU's thread, as all that follows. */
  void free(DeviceBuffer buffer) {
    if (buffers.remove(buffer)) {
      gpu.released(JCudaDriver.cuMemFree(buffer.pointer()), "freeing " + buffer);
    }
  }

  void free(HostBuffer buffer) {
    if (pinned.remove(buffer)) {
      buffer.free();
    }
  }

  /** Host memory that copies go through. */
  StagingBuffer staging() {
    return staging;
  }

  /** Device memory that is free now, in bytes. */
  long freeBytes() {
    long[] free = new long[1];
    gpu.check(JCudaDriver.cuMemGetInfo(free, new long[1]), "asking for the free memory");
    return free[0];
  }

  /** Device buffers that were not freed yet, and who allocated them. */
  List<String> live() {
    return buffers.stream().map(b -> b + " from " + b.site()).toList();
  }

  void freeAll() {
    buffers.forEach(b -> gpu.released(JCudaDriver.cuMemFree(b.pointer()), "freeing " + b));
    pinned.forEach(HostBuffer::free);
  }
}
