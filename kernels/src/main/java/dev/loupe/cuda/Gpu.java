package dev.loupe.cuda;

import static jcuda.driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
import static jcuda.driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR;
import static jcuda.driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
import static jcuda.driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR;
import static jcuda.driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;

import dev.loupe.cuda.driver.CudaDriver;
import dev.loupe.cuda.driver.DriverFunctions;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.GpuMemoryException;
import dev.loupe.cuda.driver.GpuThread;
import dev.loupe.cuda.driver.ImageSource;
import dev.loupe.cuda.driver.JCudaLibrary;
import dev.loupe.cuda.driver.KernelChoice;
import dev.loupe.cuda.driver.KernelCompiler;
import dev.loupe.cuda.driver.KernelImages;
import dev.loupe.cuda.driver.LaunchResources;
import dev.loupe.cuda.driver.Variant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import jcuda.driver.CUcontext;
import jcuda.driver.CUdevice;
import jcuda.driver.CUevent;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.JCudaDriver;
import org.jspecify.annotations.Nullable;

/**
 * One GPU: a CUDA context, a stream, and the memory and kernels on it.
 *
 * <p>The context belongs to one platform thread, {@code loupe-gpu}; calls from other threads are
 * handed to it, so all methods may be called from any thread. Work is done in the order in which it
 * was put on the stream. Whoever has a whole pass to launch does so inside {@link #run}, where
 * calls are not handed over one by one.
 */
public final class Gpu implements AutoCloseable {
  /** The oldest driver with every function that JCuda 12 calls by the name of CUDA 12. */
  private static final int MIN_DRIVER = 12_000;

  /** The name by which people know it. */
  private static final String MIN_DRIVER_NAME = "525";

  private static final int MIN_COMPUTE_CAPABILITY = 75;

  /** CUDA_ERROR_DEVICE_UNAVAILABLE, which JCuda does not name. */
  private static final int DEVICE_UNAVAILABLE = 46;

  private final CudaDriver driver;
  private final GpuThread thread = new GpuThread();
  private final CUdevice device = new CUdevice();
  private final CUcontext context = new CUcontext();
  private final Stream stream = new Stream();
  private Stream current = stream; // where launches and copies go; only the owning thread's
  private final String name;
  private int computeCapability;
  private int multiprocessors;
  private int maxSharedBytes;
  private int maxWarps;
  private long totalBytes;

  // from here on: only the owning thread's
  private final Set<DeviceBuffer> buffers = new LinkedHashSet<>();
  private final Set<HostBuffer> pinned = new LinkedHashSet<>();
  private final LoadedModules modules;
  private final Map<String, Kernel> kernels = new HashMap<>();
  private final StagingBuffer staging = new StagingBuffer();
  private boolean hasContext;
  private volatile boolean cardFailed; // that error was not a kernel's
  private volatile boolean
      failed; // the context answers every call with the error of an earlier one
  private BooleanSupplier spare = () -> false;
  private @Nullable Launch last;
  private @Nullable List<LaunchResources> watched; // launches, while somebody wants to know
  private volatile boolean closed;
  private volatile KernelChoice choice = KernelChoice.UNTRIED;

  /** JCuda's handle, which tells its address for calls that JCuda lacks. */
  static final class Stream extends CUstream {
    long address() {
      return getNativePointer();
    }
  }

  private Gpu(CudaDriver driver, int ordinal, ImageSource images) {
    this.driver = driver;
    this.modules = new LoadedModules(this, images);
    this.name = driver.cards().get(ordinal);
  }

  /**
   * Opens a device.
   *
   * @param device number in the driver's order, from 0
   * @throws GpuException if there is no driver, it is too old, or there is no such device
   */
  public static Gpu open(int device) {
    return open(device, ImageSource.BUILT);
  }

  /**
   * Likewise, with other kernels than the jar's.
   *
   * @param images where the kernels of a source come from
   */
  public static Gpu open(int device, ImageSource images) {
    CudaDriver driver = CudaDriver.find();
    requireUsable(driver, device);
    requireFunctions();
    JCudaLibrary.load(JCudaDriver.class, "JCudaDriver");
    Gpu gpu = new Gpu(driver, device, images);
    gpu.thread.run(() -> gpu.start(device));
    return gpu;
  }

  static void requireUsable(CudaDriver driver, int device) {
    if (driver.version() == 0) {
      throw new GpuException(
          "no GPU can be used: the NVIDIA driver is %s; install it, or run on the CPU"
              .formatted(driver.problem()));
    }
    if (driver.version() < MIN_DRIVER) {
      throw new GpuException(
          "no GPU can be used: the NVIDIA driver is too old, it supports CUDA %s and %s is needed;"
                  .formatted(CudaDriver.dotted(driver.version()), CudaDriver.dotted(MIN_DRIVER))
              + " update it to %s or newer, or run on the CPU".formatted(MIN_DRIVER_NAME));
    }
    int count = driver.cards().size();
    if (count == 0) {
      throw new GpuException(
          "no GPU can be used: the driver is there (%s); see nvidia-smi, or run on the CPU"
              .formatted(driver.summary()));
    }
    if (device < 0 || device >= count) {
      throw new GpuException(
          "there is no GPU %d: this machine has %d, numbered from 0 (%s)"
              .formatted(device, count, String.join(", ", driver.cards())));
    }
  }

  private static void requireFunctions() {
    CudaDriver.library()
        .flatMap(DriverFunctions::missing)
        .ifPresent(
            function -> {
              throw new GpuException(
                  "no GPU can be used: the NVIDIA driver lacks %s; update it to %s or newer, or run on the CPU"
                      .formatted(function, MIN_DRIVER_NAME));
            });
  }

  static void requireCapability(int device, String name, int computeCapability) {
    if (computeCapability < MIN_COMPUTE_CAPABILITY) {
      throw new GpuException(
          "GPU %d (%s) has compute capability %d.%d, and the kernels need %d.%d or newer"
              .formatted(
                  device,
                  name,
                  computeCapability / 10,
                  computeCapability % 10,
                  MIN_COMPUTE_CAPABILITY / 10,
                  MIN_COMPUTE_CAPABILITY % 10));
    }
  }

  private void start(int ordinal) {
    try {
      JCudaDriver.setExceptionsEnabled(false); // they carry no more than the error's name
      check(JCudaDriver.cuInit(0), "starting the driver");
      check(JCudaDriver.cuDeviceGet(device, ordinal), "opening the GPU");
      computeCapability =
          attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10
              + attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
      requireCapability(ordinal, name, computeCapability);
      multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
      maxSharedBytes = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
      maxWarps = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / 32;
      long[] total = new long[1];
      check(JCudaDriver.cuDeviceTotalMem(total, device), "asking for the memory");
      totalBytes = total[0];
      check(JCudaDriver.cuCtxCreate(context, 0, device), "creating a context");
      hasContext = true;
      // not CU_STREAM_NON_BLOCKING: plain copies then wait for the stream, and it for them
      check(JCudaDriver.cuStreamCreate(stream, 0), "creating a stream");
    } catch (RuntimeException | Error e) {
      failed = true; // or closing it would report more
      close();
      throw e;
    }
  }

  private int attribute(int attribute) {
    int[] value = new int[1];
    check(JCudaDriver.cuDeviceGetAttribute(value, attribute, device), "asking for an attribute");
    return value[0];
  }

  /** Product name of the card. */
  public String name() {
    return name;
  }

  /** Highest CUDA version that the driver supports, e.g. 13000 for 13.0. */
  public int driverVersion() {
    return driver.version();
  }

  /**
   * Which of the jar's compiled kernels this card loads, for people, e.g. {@code sm_90 cubins of
   * CUDA 12.6, from loupe-kernels-1.0.jar}; looks whether they are there and whole.
   *
   * @throws GpuException if they are not, or if none is for this card and driver
   */
  public String images() {
    return KernelImages.describe(driver.version(), computeCapability);
  }

  /** Compute capability times ten, e.g. 80 or 90. */
  public int computeCapability() {
    return computeCapability;
  }

  /** Streaming multiprocessors. */
  public int multiprocessors() {
    return multiprocessors;
  }

  /** Most dynamic shared memory of a block, in bytes. */
  public int maxSharedBytes() {
    return maxSharedBytes;
  }

  /** Warps that a multiprocessor has room for. */
  int maxWarps() {
    return maxWarps;
  }

  /** Device memory, in bytes. */
  public long totalBytes() {
    return totalBytes;
  }

  /** Device memory that is free now, in bytes. */
  public long freeBytes() {
    return call(
        () -> {
          long[] free = new long[1];
          check(JCudaDriver.cuMemGetInfo(free, new long[1]), "asking for the free memory");
          return free[0];
        });
  }

  /**
   * Allocates device memory; its content is not defined.
   *
   * @throws IllegalArgumentException if {@code elements} is not positive or its bytes exceed a long
   * @throws GpuMemoryException if it does not fit; says what was asked and what is free
   */
  public DeviceBuffer allocate(Element element, long elements) {
    if (elements <= 0 || elements > Long.MAX_VALUE / element.bytes()) {
      throw new IllegalArgumentException(
          "a buffer of %d %s cannot be allocated".formatted(elements, element.suffix()));
    }
    String site = site();
    return call(
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
                        size(bytes),
                        elements,
                        element.suffix(),
                        size(freeBytes()),
                        size(totalBytes),
                        name));
          }
          check(rc, "allocating " + size(bytes));
          DeviceBuffer buffer = new DeviceBuffer(this, element, elements, pointer, site);
          buffers.add(buffer);
          return buffer;
        });
  }

  /**
   * Lets {@code spare} give memory back before an allocation fails for want of it.
   *
   * @param spare frees some and returns true, or returns false if it has none; called on the GPU's
   *     thread, so it must not wait for a thread that waits for this GPU
   */
  public void whenShort(BooleanSupplier spare) {
    run(() -> this.spare = spare);
  }

  /**
   * Pins host memory, for copies that go on while the host does.
   *
   * @throws GpuMemoryException if the driver has no such memory left
   */
  public HostBuffer pin(long bytes) {
    if (bytes <= 0) {
      throw new IllegalArgumentException("%d bytes of pinned memory".formatted(bytes));
    }
    return call(
        () -> {
          while (true) {
            try {
              HostBuffer buffer = new HostBuffer(this, bytes);
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

  /**
   * Records what {@code work} puts on the stream, without running it.
   *
   * @throws GpuException if it does something that can't be recorded: waits, or copies to or from
   *     memory that is not pinned
   */
  public Graph record(Runnable work) {
    return call(() -> new Graph(this, work));
  }

  /** A mark that was not set yet. */
  public CudaEvent mark() {
    return call(() -> new CudaEvent(this));
  }

  /** Who allocates: the first frame outside this class. */
  private static String site() {
    return StackWalker.getInstance()
        .walk(
            frames -> frames.filter(f -> !f.getClassName().equals(Gpu.class.getName())).findFirst())
        .map(StackWalker.StackFrame::toStackTraceElement)
        .map(StackTraceElement::toString)
        .orElse("?");
  }

  void free(DeviceBuffer buffer) {
    if (buffers.remove(buffer)) {
      released(JCudaDriver.cuMemFree(buffer.pointer()), "freeing " + buffer);
    }
  }

  void free(HostBuffer buffer) {
    if (pinned.remove(buffer)) {
      buffer.free();
    }
  }

  /** What was allocated and not closed yet, and by whom; for tests and for finding leaks. */
  public List<String> liveBuffers() {
    if (closed) {
      return List.of();
    }
    return call(() -> buffers.stream().map(b -> b + " from " + b.site()).toList());
  }

  /**
   * The kernel {@code name} of {@code file}; loaded on first use, then kept.
   *
   * @param file name of the source without its ending, e.g. {@code attention}
   * @throws GpuException if there is no such kernel, or none for this card and driver
   */
  public Kernel kernel(String file, String name) {
    return call(
        () -> {
          Kernel known = kernels.get(name);
          if (known == null) {
            known = Kernel.of(this, modules.with(file, name), file, name);
            kernels.put(name, known);
          }
          return known;
        });
  }

  /**
   * Loads the kernels of sources now, which would otherwise happen when they are first needed. PTX
   * is only read: the driver compiles a kernel when it is needed.
   *
   * @param files names of the sources without their ending
   * @throws GpuException if there are none for this card and driver, or the driver refuses them
   */
  public void load(List<String> files) {
    run(() -> files.forEach(modules::load));
  }

  /** Lets {@code choice} decide from now on which variants serve. */
  public void use(KernelChoice choice) {
    this.choice = choice;
  }

  /** What decides now which variants serve. */
  public KernelChoice choice() {
    return choice;
  }

  /**
   * The variant to run, as {@link KernelChoice#of} has it; empty if none of the candidates computes
   * rightly on this card.
   */
  public Optional<Variant> find(List<Variant> candidates, Element element, int rows) {
    return choice.of(candidates, element, rows);
  }

  /**
   * Likewise, where nothing can take the kernels' place.
   *
   * @throws GpuException if none of the candidates computes rightly on this card
   */
  public Variant choose(List<Variant> candidates, Element element, int rows) {
    return find(candidates, element, rows)
        .orElseThrow(
            () ->
                new GpuException(
                    "no kernel of %s in %s computes rightly on %s%s"
                        .formatted(
                            candidates.getFirst().family(),
                            element.suffix(),
                            name,
                            choice.reason(candidates, element))));
  }

  /** What to throw where a kernel has computed what it can't have; nothing is trusted then. */
  public GpuException wrong(String message) {
    return new GpuException(message + choice.distrust());
  }

  /** Names of the kernels that were asked for so far. */
  public Set<String> loadedKernels() {
    return call(() -> Set.copyOf(kernels.keySet()));
  }

  /** Runs {@code work} on the thread that owns the context; calls inside it are not handed over. */
  public void run(Runnable work) {
    thread.run(
        () -> {
          requireOpen();
          work.run();
        });
  }

  /**
   * For launches: the same without a lambda to allocate; {@code work} asks {@link #requireOpen}.
   */
  void runPrepared(Runnable work) {
    thread.run(work);
  }

  /**
   * Runs {@code work}, and tells what each launch in it takes, in their order. Products of cuBLAS
   * are not among them.
   */
  public List<LaunchResources> resources(Runnable work) {
    return call(
        () -> {
          List<LaunchResources> launches = new ArrayList<>();
          watched = launches;
          try {
            work.run();
          } finally {
            watched = null;
          }
          return launches;
        });
  }

  /** True once an error has ended the context: nothing works any more but to close it. */
  public boolean isLost() {
    return failed;
  }

  /** True once the driver has reported an error that no kernel is to blame for. */
  public boolean hasCardFailed() {
    return cardFailed;
  }

  <T> T call(Supplier<T> work) {
    Object[] result = new Object[1];
    run(() -> result[0] = work.get());
    @SuppressWarnings("unchecked") // just put there
    T t = (T) result[0];
    return t;
  }

  /** True once it was closed, and with it all that it had. */
  public boolean isClosed() {
    return closed;
  }

  void requireOpen() {
    if (closed) {
      throw new GpuException("the GPU was closed");
    }
  }

  /**
   * Waits until all that was put on its streams is done.
   *
   * @throws GpuException if any of it failed
   */
  public void synchronize() {
    run(() -> check(JCudaDriver.cuCtxSynchronize(), "waiting for the GPU"));
  }

  /**
   * Time that the GPU takes for what {@code work} puts on the stream, by events around it.
   *
   * @return milliseconds; the resolution is about 0.5 microseconds
   */
  public double milliseconds(Runnable work) {
    float[] elapsed = new float[1];
    run(
        () -> {
          CUevent before = new CUevent();
          CUevent after = new CUevent();
          check(JCudaDriver.cuEventCreate(before, 0), "creating an event");
          try {
            check(JCudaDriver.cuEventCreate(after, 0), "creating an event");
            try {
              check(JCudaDriver.cuEventRecord(before, stream), "recording an event");
              work.run();
              check(JCudaDriver.cuEventRecord(after, stream), "recording an event");
              check(JCudaDriver.cuEventSynchronize(after), "waiting for the GPU");
              check(JCudaDriver.cuEventElapsedTime(elapsed, before, after), "reading the time");
            } finally {
              released(JCudaDriver.cuEventDestroy(after), "freeing an event");
            }
          } finally {
            released(JCudaDriver.cuEventDestroy(before), "freeing an event");
          }
        });
    return elapsed[0];
  }

  /** Frees all that is left on the device; once is enough, more do nothing. */
  @Override
  public void close() {
    if (closed) {
      return;
    }
    try {
      thread.run(this::shutDown);
    } catch (GpuException e) {
      if (!closed) {
        throw e;
      } // another thread closed it meanwhile
    }
  }

  private void shutDown() {
    if (closed) {
      return;
    }
    closed = true;
    thread.stop();
    if (!hasContext) {
      return;
    }
    try {
      released(JCudaDriver.cuCtxSynchronize(), "waiting for the GPU to close it");
      // the context takes these with it; a card with ten contexts finds them earlier
      buffers.forEach(b -> released(JCudaDriver.cuMemFree(b.pointer()), "freeing " + b));
      pinned.forEach(HostBuffer::free);
      modules.unload();
      released(JCudaDriver.cuStreamDestroy(stream), "freeing a stream");
    } finally {
      int rc = JCudaDriver.cuCtxDestroy(context);
      released(rc, "closing the GPU");
    }
  }

  /** A new stream beside the GPU's own one. */
  public CudaStream sideStream() {
    return call(() -> new CudaStream(this));
  }

  /** Where launches and copies go now. */
  Stream stream() {
    return current;
  }

  /** Sends what {@code work} puts on the stream to {@code side}. On the GPU's thread. */
  void divert(Stream side, Runnable work) {
    Stream before = current;
    current = side;
    try {
      work.run();
    } finally {
      current = before;
    }
  }

  StagingBuffer staging() {
    return staging;
  }

  /** Remembers what a later failure is likely about. */
  void launched(Launch launch) {
    last = launch;
    if (watched != null) {
      watched.add(launch.resources());
    }
  }

  /** Throws if {@code rc} is not success. */
  void check(int rc, String what) {
    if (rc != CUresult.CUDA_SUCCESS) {
      throw failure(rc, what);
    }
  }

  /** Throws if {@code rc}, of giving something back, says more than that the context is lost. */
  void released(int rc, String what) {
    if (!failed) {
      check(rc, what);
    }
  }

  /** What to throw for result {@code rc} of {@code what}. */
  GpuException failure(int rc, String what) {
    String message = "%s failed: %s".formatted(what, describe(rc));
    if (rc == CUresult.CUDA_ERROR_OUT_OF_MEMORY) {
      return new GpuMemoryException(message);
    }
    cardFailed |= isOfTheCard(rc);
    if (isSticky(rc)) {
      failed = true;
      message +=
          hasContext
              ? "; the GPU must be closed" + (last == null ? "" : ", it last ran " + last)
              : "; no GPU can be used in this process any more";
      message += hasContext && last != null && blamesKernel(rc) ? choice.distrust() : "";
    }
    return new GpuException(message);
  }

  /** What the driver says of an error. */
  static String describe(int rc) {
    String[] text = new String[1];
    String[] name = new String[1];
    int known = JCudaDriver.cuGetErrorString(rc, text) | JCudaDriver.cuGetErrorName(rc, name);
    String described = known == 0 ? text[0] + " (" + name[0] + ")" : "error " + rc;
    return described + KernelCompiler.advice(rc);
  }

  /** True for the errors that end a context: those of a kernel, and of a card that is lost. */
  private static boolean isSticky(int rc) {
    return switch (rc) {
      case CUresult.CUDA_ERROR_ILLEGAL_ADDRESS,
          CUresult.CUDA_ERROR_LAUNCH_TIMEOUT,
          CUresult.CUDA_ERROR_ASSERT,
          CUresult.CUDA_ERROR_HARDWARE_STACK_ERROR,
          CUresult.CUDA_ERROR_ILLEGAL_INSTRUCTION,
          CUresult.CUDA_ERROR_MISALIGNED_ADDRESS,
          CUresult.CUDA_ERROR_INVALID_ADDRESS_SPACE,
          CUresult.CUDA_ERROR_INVALID_PC,
          CUresult.CUDA_ERROR_LAUNCH_FAILED,
          CUresult.CUDA_ERROR_ECC_UNCORRECTABLE,
          DEVICE_UNAVAILABLE,
          CUresult.CUDA_ERROR_UNKNOWN ->
          true;
      default -> false;
    };
  }

  /** True for errors that a kernel brings about; CUDA_ERROR_UNKNOWN says nothing of the cause. */
  private static boolean blamesKernel(int rc) {
    return isSticky(rc) && !isOfTheCard(rc) && rc != CUresult.CUDA_ERROR_UNKNOWN;
  }

  /** True for errors that no kernel brings about: the card, its memory or its driver did. */
  private static boolean isOfTheCard(int rc) {
    return switch (rc) {
      case DEVICE_UNAVAILABLE,
          CUresult.CUDA_ERROR_NO_DEVICE,
          CUresult.CUDA_ERROR_INVALID_DEVICE,
          CUresult.CUDA_ERROR_ECC_UNCORRECTABLE,
          CUresult.CUDA_ERROR_NVLINK_UNCORRECTABLE,
          CUresult.CUDA_ERROR_NOT_INITIALIZED,
          CUresult.CUDA_ERROR_DEINITIALIZED,
          CUresult.CUDA_ERROR_INVALID_CONTEXT,
          CUresult.CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
          CUresult.CUDA_ERROR_OUT_OF_MEMORY ->
          true;
      default -> false;
    };
  }

  /** Bytes as people write them. */
  public static String size(long bytes) {
    if (bytes < 1024) {
      return bytes + " bytes";
    }
    int power = (63 - Long.numberOfLeadingZeros(bytes)) / 10;
    double scaled = bytes / Math.pow(1024, power);
    return String.format(Locale.ROOT, "%.1f %ciB", scaled, "KMGTPE".charAt(power - 1));
  }
}
