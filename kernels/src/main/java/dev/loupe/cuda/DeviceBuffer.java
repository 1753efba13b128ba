package dev.loupe.cuda;

import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.HostPointer;
import java.lang.foreign.MemorySegment;
import jcuda.driver.JCudaDriver;
import org.jspecify.annotations.Nullable;

/**
 * A row of equal elements in device memory.
 *
 * <p>Host values are f32 or int; f16 and bf16 are converted on the host, rounding to nearest, ties
 * to even. Copies wait for what was launched before and are done when the method returns. All
 * methods may be called from any thread, and throw {@link IllegalArgumentException} if the buffer
 * was freed, is too small, or holds another element, {@link GpuException} if the copy fails or the
 * GPU was closed.
 */
public final class DeviceBuffer implements AutoCloseable {
  private final Gpu gpu;
  private final Element element;
  private final long elements;
  private final DevicePointer pointer;
  private final String site;
  private final @Nullable DeviceBuffer whole; // of which this is a slice
  private volatile boolean freed;

  DeviceBuffer(Gpu gpu, Element element, long elements, DevicePointer pointer, String site) {
    this(gpu, element, elements, pointer, site, null);
  }

  /** Host memory that kernels reach at {@code pointer}; its {@link HostBuffer} frees it. */
  static DeviceBuffer mapped(Gpu gpu, long bytes, DevicePointer pointer) {
    return new DeviceBuffer(gpu, Element.I8, bytes, pointer, "pinned memory");
  }

  private DeviceBuffer(
      Gpu gpu,
      Element element,
      long elements,
      DevicePointer pointer,
      String site,
      @Nullable DeviceBuffer whole) {
    this.gpu = gpu;
    this.element = element;
    this.elements = elements;
    this.pointer = pointer;
    this.site = site;
    this.whole = whole;
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
   * @throws IllegalArgumentException if it was freed
   */
  public long address() {
    requireLive();
    return pointer.address();
  }

  /** True until it, or the GPU, is closed. */
  public boolean isLive() {
    return !(whole == null ? freed : whole.freed) && !gpu.isClosed();
  }

  DevicePointer pointer() {
    return pointer;
  }

  /** Who allocated it. */
  String site() {
    return site;
  }

  void requireLive() {
    if (!isLive()) {
      throw new IllegalArgumentException("%s is used after it was freed".formatted(this));
    }
  }

  /**
   * A view of {@code count} elements from {@code from} on. It ends with this buffer; closing the
   * view does nothing.
   */
  public DeviceBuffer slice(long from, long count) {
    if (from < 0 || count <= 0 || from > elements - count) {
      throw new IllegalArgumentException(
          "%s has no slice of %d from %d on".formatted(this, count, from));
    }
    requireLive();
    DeviceBuffer owner = whole == null ? this : whole;
    return new DeviceBuffer(gpu, element, count, pointer.plus(from * element.bytes()), site, owner);
  }

  /** The same memory as elements of another type, as many as it has whole ones. */
  public DeviceBuffer as(Element other) {
    requireLive();
    DeviceBuffer owner = whole == null ? this : whole;
    return new DeviceBuffer(gpu, other, bytes() / other.bytes(), pointer, site, owner);
  }

  /** Writes {@code values} to the start, converting to f16 or bf16 where this holds that. */
  public void upload(float[] values) {
    requireRoom("upload", values.length, "f32", element.isFloat());
    inPieces(
        (long) values.length * element.bytes(),
        (staging, at, n) -> {
          staging.put(element, values, (int) (at / element.bytes()), (int) (n / element.bytes()));
          copyIn(staging.pointer(), at, n);
        });
  }

  /** Writes {@code values} to the start of an I32 buffer. */
  public void upload(int[] values) {
    requireRoom("upload", values.length, "i32", element == Element.I32);
    uploadBytes(MemorySegment.ofArray(values));
  }

  /**
   * Writes bytes to the start, as they are.
   *
   * @param bytes must stay open until the call returns
   */
  public void upload(MemorySegment bytes) {
    requireBytes("upload", bytes);
    uploadBytes(bytes);
  }

  private void uploadBytes(MemorySegment bytes) {
    if (bytes.isNative()) {
      gpu.run(
          () -> {
            requireLive();
            copyIn(new HostPointer(bytes.address()), 0, bytes.byteSize());
          });
      return;
    }
    inPieces(
        bytes.byteSize(),
        (staging, at, n) -> {
          MemorySegment.copy(bytes, at, staging.memory(), 0, n);
          copyIn(staging.pointer(), at, n);
        });
  }

  /** Reads {@code values.length} elements from the start, converting from f16 or bf16. */
  public void download(float[] values) {
    requireRoom("download", values.length, "f32", element.isFloat());
    inPieces(
        (long) values.length * element.bytes(),
        (staging, at, n) -> {
          copyOut(staging.pointer(), at, n);
          staging.get(element, values, (int) (at / element.bytes()), (int) (n / element.bytes()));
        });
  }

  /** Reads {@code values.length} elements from the start of an I32 buffer. */
  public void download(int[] values) {
    requireRoom("download", values.length, "i32", element == Element.I32);
    downloadBytes(MemorySegment.ofArray(values));
  }

  /**
   * Reads bytes from the start, as they are.
   *
   * @param bytes must stay open until the call returns
   */
  public void download(MemorySegment bytes) {
    requireBytes("download", bytes);
    if (bytes.isReadOnly()) {
      throw new IllegalArgumentException(
          "cannot download %s into read-only memory".formatted(this));
    }
    downloadBytes(bytes);
  }

  private void downloadBytes(MemorySegment bytes) {
    if (bytes.isNative()) {
      gpu.run(
          () -> {
            requireLive();
            copyOut(new HostPointer(bytes.address()), 0, bytes.byteSize());
          });
      return;
    }
    inPieces(
        bytes.byteSize(),
        (staging, at, n) -> {
          copyOut(staging.pointer(), at, n);
          MemorySegment.copy(staging.memory(), 0, bytes, at, n);
        });
  }

  /** Moves {@code n} bytes through the staging memory, from byte {@code at} of this buffer on. */
  private interface Piece {
    void copy(StagingBuffer staging, long at, long n);
  }

  /**
   * Copies {@code bytes} bytes on the GPU's thread, as much at once as the staging memory takes.
   */
  private void inPieces(long bytes, Piece piece) {
    gpu.run(
        () -> {
          requireLive();
          StagingBuffer staging = gpu.memory().staging();
          long n;
          for (long at = 0; at < bytes; at += n) {
            n = Math.min(bytes - at, staging.memory().byteSize());
            piece.copy(staging, at, n);
          }
        });
  }

  private void copyIn(HostPointer from, long at, long n) {
    if (n > 0) {
      int rc = JCudaDriver.cuMemcpyHtoD(pointer.plus(at), from, n);
      if (rc != 0) {
        throw gpu.failure(rc, "uploading %d bytes to %s".formatted(n, this));
      }
    }
  }

  private void copyOut(HostPointer to, long at, long n) {
    if (n > 0) {
      int rc = JCudaDriver.cuMemcpyDtoH(to, pointer.plus(at), n);
      if (rc != 0) {
        throw gpu.failure(rc, "downloading %d bytes of %s".formatted(n, this));
      }
    }
  }

  /**
   * Puts a copy of the first {@code count} elements of {@code from} on the stream; they go to the
   * start of this.
   *
   * @throws IllegalArgumentException if one of them was freed, is too small or holds another
   *     element
   */
  public void copyFrom(DeviceBuffer from, long count) {
    if (from.element != element || count < 0 || count > Math.min(elements, from.elements)) {
      throw new IllegalArgumentException(
          "cannot copy %d elements of %s to %s".formatted(count, from, this));
    }
    long n = count * element.bytes();
    gpu.run(
        () -> {
          requireLive();
          from.requireLive();
          gpu.check(
              JCudaDriver.cuMemcpyDtoDAsync(pointer, from.pointer, n, gpu.stream()),
              "copying %d bytes of %s".formatted(n, from));
        });
  }

  /** Sets every byte; 0xff makes every f32, f16 and bf16 a NaN. */
  public void fill(byte value) {
    gpu.run(
        () -> {
          requireLive();
          int rc = JCudaDriver.cuMemsetD8(pointer, value, bytes());
          if (rc != 0) {
            throw gpu.failure(rc, "filling " + this);
          }
        });
  }

  private void requireRoom(String what, long count, String type, boolean fits) {
    if (!fits || count > elements) {
      throw new IllegalArgumentException("cannot %s %d %s: %s".formatted(what, count, type, this));
    }
  }

  private void requireBytes(String what, MemorySegment memory) {
    if (memory.byteSize() > bytes()) {
      throw new IllegalArgumentException(
          "cannot %s %d bytes: %s has %d".formatted(what, memory.byteSize(), this, bytes()));
    }
    // its address is what the driver gets, so nobody else looks at these
    if (!memory.scope().isAlive() || !memory.isAccessibleBy(Thread.currentThread())) {
      throw new IllegalArgumentException(
          "cannot %s %d bytes: the host memory was closed or is another thread's"
              .formatted(what, memory.byteSize()));
    }
  }

  /** Its {@link HostBuffer} was freed. */
  void ended() {
    freed = true;
  }

  /** Frees the memory; once is enough, more do nothing. */
  @Override
  public void close() {
    if (whole != null || freed || gpu.isClosed()) {
      return;
    }
    gpu.run(
        () -> {
          if (!freed) {
            freed = true;
            gpu.memory().free(this);
          }
        });
  }

  @Override
  public String toString() {
    return "a %s of %d %s"
        .formatted(whole == null ? "buffer" : "slice", elements, element.suffix());
  }
}
