package dev.loupe.cuda.emulator;

import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.CudaDriver;
import dev.loupe.cuda.driver.ImageArchive;
import dev.loupe.cuda.driver.ImageSource;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.util.List;
import java.util.Objects;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/** The stand-in driver that runs kernels on the CPU, where that is what {@code Gpu} found. */
public final class Emulator {
  /** In which order the threads of a block run between barriers. */
  public enum Schedule {
    FORWARD(0),
    REVERSE(1),
    RANDOM(2);

    private final int mode;

    Schedule(int mode) {
      this.mode = mode;
    }
  }

  /** The kernels of tests, which no jar has. */
  private static final class TestKernels {
    static final ImageArchive ARCHIVE =
        new ImageArchive(
            name -> Emulator.class.getResourceAsStream("/dev/loupe/cuda/images/" + name),
            "test-index");

    private TestKernels() {}

    static byte[] ptx(String file, int computeCapability) {
      String name = "%s.compute_%d.ptx".formatted(file, computeCapability < 80 ? 75 : 80);
      return ARCHIVE.unpack(Objects.requireNonNull(ARCHIVE.find(name), name));
    }
  }

  /** What a GPU of a test loads. */
  public static final ImageSource IMAGES =
      (file, computeCapability, driver) ->
          file.equals("micro")
              ? TestKernels.ptx(file, computeCapability)
              : ImageSource.BUILT.image(file, computeCapability, driver);

  private Emulator() {}

  /** True if the driver of this process is the stand-in. */
  public static boolean isDriver() {
    return CudaDriver.library().flatMap(driver -> driver.find("emu_options")).isPresent();
  }

  /**
   * Opens GPU 0, emulated or real. The kernels are linked into the emulator, which asks the images
   * for their names and resources only.
   */
  public static Gpu open() {
    return Gpu.open(0, IMAGES);
  }

  /**
   * How kernels are run from now on; on a real card, does nothing.
   *
   * @param seed of the random schedule
   * @param eager true if cp.async copies at once, false if not before it is waited for
   */
  public static void options(Schedule schedule, long seed, boolean eager) {
    if (isDriver()) {
      call(
          "emu_options",
          FunctionDescriptor.of(
              ValueLayout.JAVA_INT,
              ValueLayout.JAVA_INT,
              ValueLayout.JAVA_LONG,
              ValueLayout.JAVA_INT),
          schedule.mode,
          seed,
          eager ? 1 : 0);
    }
  }

  /** The usual way: threads in their order, cp.async done when it is waited for. */
  public static void forward() {
    options(Schedule.FORWARD, 0, false);
  }

  /** Switches to each of the other ways in turn; what depends on the order shows in one of them. */
  public static List<Runnable> otherSchedules() {
    return List.of(
        () -> options(Schedule.REVERSE, 0, false),
        () -> options(Schedule.RANDOM, 1, false),
        () -> options(Schedule.RANDOM, 2, true));
  }

  /**
   * Pretends another card from now on; what is below 0 stays.
   *
   * @param computeCapability times ten
   * @param driver CUDA version that the driver supports, e.g. 13000
   * @param devices 0 or 1
   * @param memory bytes
   */
  public static void card(int computeCapability, int driver, int devices, long memory) {
    call(
        "emu_card",
        FunctionDescriptor.of(
            ValueLayout.JAVA_INT,
            ValueLayout.JAVA_INT,
            ValueLayout.JAVA_INT,
            ValueLayout.JAVA_INT,
            ValueLayout.JAVA_LONG),
        computeCapability,
        driver,
        devices,
        memory);
  }

  /** The card that is pretended unless a test asks for another. */
  public static void usualCard() {
    card(90, 13000, 1, -1);
    memory(8L << 30);
    jit(true);
  }

  /** Lets a kernel end its context with a CUDA error, after so many that succeed. */
  public static void failKernel(long after, int error) {
    call(
        "emu_fail_kernel",
        FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.JAVA_LONG, ValueLayout.JAVA_INT),
        after,
        error);
  }

  /** Has {@code machine} run what is launched from now on; the emulator again if it is null. */
  public static void otherMachine(MemorySegment machine) {
    call(
        "emu_other_machine",
        FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.ADDRESS),
        machine);
  }

  /** Lets the card disappear with a CUDA error, after so many calls that succeed. */
  static void loseCard(long after, int error) {
    call(
        "emu_lose_card",
        FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.JAVA_LONG, ValueLayout.JAVA_INT),
        after,
        error);
  }

  /** Lets contexts open again, as in a new process, after an error that ended CUDA in this one. */
  public static void revive() {
    call("emu_revive", FunctionDescriptor.of(ValueLayout.JAVA_INT));
  }

  /** A card of so many bytes, of which a context and modules take their part. */
  static void memory(long bytes) {
    call("emu_memory", FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.JAVA_LONG), bytes);
  }

  /** Whether the driver has its compiler of PTX. */
  public static void jit(boolean there) {
    call(
        "emu_jit",
        FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.JAVA_INT),
        there ? 1 : 0);
  }

  /** 1: work waits until somebody waits for it; 0: it runs when it is put on a stream. */
  public static void lateStreams(boolean late) {
    call(
        "emu_late_streams",
        FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.JAVA_INT),
        late ? 1 : 0);
  }

  /** Lets loading take until it is let go on; how many loads were waiting. */
  public static int holdLoads(boolean hold) {
    return (int)
        call(
            "emu_hold_loads",
            FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.JAVA_INT),
            hold ? 1 : 0);
  }

  /** An error of the driver that nobody has asked about; empty if there is none. */
  static String unreported() {
    MemorySegment text =
        (MemorySegment) call("emu_unreported", FunctionDescriptor.of(ValueLayout.ADDRESS));
    return text.address() == 0 ? "" : text.reinterpret(1 << 16).getString(0);
  }

  /** Forgets errors, after tests of what the driver refuses. */
  public static void forgetErrors() {
    call("emu_forget_errors", FunctionDescriptor.of(ValueLayout.JAVA_INT));
  }

  /**
   * Puts the kernels of a library that mutants.sh built in the place of the right ones, from the
   * next launch on; null: the right ones again.
   */
  public static void replaceKernels(@Nullable Path library) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment path =
          library == null ? MemorySegment.NULL : arena.allocateFrom(library.toString());
      int rc =
          (Integer)
              call(
                  "emu_replace_kernels",
                  FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.ADDRESS),
                  path);
      if (rc != 0) {
        throw new IllegalStateException("no kernels are replaced by those of " + library);
      }
    }
  }

  /** Device allocations that were not freed, in the whole process. */
  public static int liveAllocations() {
    return (Integer) call("emu_live_allocations", FunctionDescriptor.of(ValueLayout.JAVA_INT));
  }

  /** {@code CUDA_CACHE_PATH} as the driver found it when it started; empty if there was none. */
  public static String cachePath() {
    MemorySegment text =
        (MemorySegment) call("emu_cache_path", FunctionDescriptor.of(ValueLayout.ADDRESS));
    return text.reinterpret(1 << 16).getString(0);
  }

  /** Names of the kernels that are linked into the emulator. */
  public static List<String> kernels() {
    int n = (Integer) call("emu_kernel_count", FunctionDescriptor.of(ValueLayout.JAVA_INT));
    FunctionDescriptor name = FunctionDescriptor.of(ValueLayout.ADDRESS, ValueLayout.JAVA_INT);
    return IntStream.range(0, n)
        .mapToObj(i -> (MemorySegment) call("emu_kernel_name", name, i))
        .map(text -> text.reinterpret(Long.MAX_VALUE).getString(0))
        .toList();
  }

  private static Object call(String name, FunctionDescriptor type, Object... arguments) {
    try {
      return Linker.nativeLinker()
          .downcallHandle(CudaDriver.library().orElseThrow().findOrThrow(name), type)
          .invokeWithArguments(arguments);
    } catch (Throwable e) { // declared by every native call
      throw new IllegalStateException(name, e);
    }
  }
}
