package dev.loupe.cuda;

import dev.loupe.cuda.driver.CudaDriver;
import dev.loupe.cuda.driver.DriverRequirements;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.GpuMemoryException;
import dev.loupe.cuda.driver.GpuThread;
import dev.loupe.cuda.driver.ImageSource;
import dev.loupe.cuda.driver.JCudaLibrary;
import dev.loupe.cuda.driver.KernelChoice;
import dev.loupe.cuda.driver.KernelImages;
import dev.loupe.cuda.driver.LaunchResources;
import dev.loupe.cuda.driver.Variant;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.Set;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import jcuda.driver.JCudaDriver;

/**
 * One GPU: a CUDA context, a stream, and the memory and kernels on it.
 *
 * <p>The context belongs to one platform thread, {@code loupe-gpu}; calls from other threads are
 * handed to it, so all methods may be called from any thread. Work is done in the order in which it
 * was put on the stream. Whoever has a whole pass to launch does so inside {@link #run}, where
 * calls are not handed over one by one.
 */
public final class Gpu implements AutoCloseable {
  private final CudaDriver driver;
  private final GpuThread thread = new GpuThread();
  private final CudaContext context = new CudaContext(this);
  private final String name;

  private final GpuMemory memory = new GpuMemory(this);
  private final LoadedModules modules;
  private final LaunchLog launches = new LaunchLog();
  private final DriverFailures failures = new DriverFailures(this, launches);
  private volatile boolean closed;
  private volatile KernelChoice choice = KernelChoice.UNTRIED;

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
    DriverRequirements.check(driver, device);
    DriverRequirements.checkFunctions();
    JCudaLibrary.load(JCudaDriver.class, "JCudaDriver");
    Gpu gpu = new Gpu(driver, device, images);
    gpu.thread.run(() -> gpu.start(device));
    return gpu;
  }

  private void start(int ordinal) {
    try {
      context.create(ordinal);
    } catch (RuntimeException | Error e) {
      failures.lose(); // or closing it would report more
      close();
      throw e;
    }
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
   * Which of the jar's compiled kernels this card loads, for people, e.g. {@code sm_86 cubins of
   * CUDA 12.6, from loupe-kernels-1.0.jar}; looks whether they are there and whole.
   *
   * @throws GpuException if they are not, or if none is for this card and driver
   */
  public String images() {
    return KernelImages.describe(driver.version(), computeCapability());
  }

  /** Compute capability times ten, e.g. 80 or 90. */
  public int computeCapability() {
    return context.computeCapability();
  }

  /** Streaming multiprocessors. */
  public int multiprocessors() {
    return context.multiprocessors();
  }

  /** Most dynamic shared memory of a block, in bytes. */
  public int maxSharedBytes() {
    return context.maxSharedBytes();
  }

  /** Device memory, in bytes. */
  public long totalBytes() {
    return context.totalBytes();
  }

  /** Device memory that is free now, in bytes. */
  public long freeBytes() {
    return call(memory::freeBytes);
  }

  /**
   * Allocates device memory; its content is not defined.
   *
   * @throws IllegalArgumentException if {@code elements} is not positive or its bytes exceed a long
   * @throws GpuMemoryException if it does not fit; says what was asked and what is free
   */
  public DeviceBuffer allocate(Element element, long elements) {
    return memory.allocate(element, elements);
  }

  /**
   * Lets {@code spare} give memory back before an allocation fails for want of it.
   *
   * @param spare frees some and returns true, or returns false if it has none; called on the GPU's
   *     thread, so it must not wait for a thread that waits for this GPU
   */
  public void whenShort(BooleanSupplier spare) {
    run(() -> memory.whenShort(spare));
  }

  /**
   * Pins host memory, for copies that go on while the host does.
   *
   * @throws GpuMemoryException if the driver has no such memory left
   */
  public HostBuffer pin(long bytes) {
    return memory.pin(bytes);
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

  /** What was allocated and not closed yet, and by whom; for tests and for finding leaks. */
  public List<String> liveBuffers() {
    if (closed) {
      return List.of();
    }
    return call(memory::live);
  }

  /**
   * The kernel {@code name} of {@code file}; loaded on first use, then kept.
   *
   * @param file name of the source without its ending, e.g. {@code attention}
   * @throws GpuException if there is no such kernel, or none for this card and driver
   */
  public Kernel kernel(String file, String name) {
    return call(() -> modules.kernel(file, name));
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
        .orElseThrow(() -> choice.none(candidates, element, name));
  }

  /** What to throw where a kernel has computed what it can't have; nothing is trusted then. */
  public GpuException wrong(String message) {
    return choice.wrong(message);
  }

  /** Names of the kernels that were asked for so far. */
  public Set<String> loadedKernels() {
    return call(() -> modules.kernels());
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
    return call(() -> launches.resources(work));
  }

  /** Launches so far; those that a graph replays count once, when it is recorded. */
  public long launched() {
    return call(launches::count);
  }

  /** True once an error has ended the context: nothing works any more but to close it. */
  public boolean isLost() {
    return failures.isLost();
  }

  /** True once the driver has reported an error that no kernel is to blame for. */
  public boolean hasCardFailed() {
    return failures.hasCardFailed();
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
    run(() -> elapsed[0] = CudaEvent.milliseconds(this, context.stream(), work));
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
    if (!context.isCreated()) {
      return;
    }
    try {
      released(JCudaDriver.cuCtxSynchronize(), "waiting for the GPU to close it");
      // the context takes these with it; a card with ten contexts finds them earlier
      memory.freeAll();
      modules.unload();
      context.freeStream();
    } finally {
      context.destroy();
    }
  }

  /** A new stream beside the GPU's own one. */
  public CudaStream sideStream() {
    return call(() -> new CudaStream(this));
  }

  /** Where launches and copies go now. */
  CudaContext.Stream stream() {
    return context.current();
  }

  CudaContext context() {
    return context;
  }

  GpuMemory memory() {
    return memory;
  }

  LaunchLog launches() {
    return launches;
  }

  /** Throws if {@code rc} is not success. */
  void check(int rc, String what) {
    failures.check(rc, what);
  }

  /** Throws if {@code rc}, of giving something back, says more than that the context is lost. */
  void released(int rc, String what) {
    failures.released(rc, what);
  }

  /** What to throw for result {@code rc} of {@code what}. */
  GpuException failure(int rc, String what) {
    return failures.of(rc, what);
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
