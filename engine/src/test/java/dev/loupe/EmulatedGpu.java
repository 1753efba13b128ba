package dev.loupe;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Assumptions;

/** The emulator's controls, for tests of what goes wrong; a real card has none of them. */
public final class EmulatedGpu {
  private EmulatedGpu() {}

  /** Skips the test where the driver is not the emulator. */
  public static void require() {
    Assumptions.assumeTrue(isDriver(), "needs the emulated driver");
  }

  /** The usual card, and no failures to come. */
  public static void reset() {
    card(90, 13_000, 1, -1);
    memory(8L << 30);
    failAllocation(-1);
    failKernel(-1, 0);
    loseCard(-1, 0);
    kernelsOff(null);
    revive();
    refusePinned(false);
    KeptVerdicts.restore();
  }

  /**
   * The verdicts on the emulated cards, which a test's failing kernel has deleted: with them the
   * next test does not test all kernels again.
   */
  private static final class KeptVerdicts {
    private static final Map<Path, byte[]> KEPT = new HashMap<>();

    static synchronized void restore() {
      String cache = System.getenv("LOUPE_CACHE");
      if (cache == null || !Files.isDirectory(Path.of(cache, "cards"))) {
        return;
      }
      Path cards = Path.of(cache, "cards");
      try (Stream<Path> files = Files.list(cards)) {
        for (Path file : files.filter(f -> f.toString().endsWith(".verdicts")).toList()) {
          KEPT.putIfAbsent(file, Files.readAllBytes(file));
        }
        for (Map.Entry<Path, byte[]> kept : KEPT.entrySet()) {
          if (!Files.exists(kept.getKey())) {
            Path part = Files.createTempFile(cards, "kept-", ".part");
            Files.write(part, kept.getValue());
            Files.move(part, kept.getKey(), StandardCopyOption.ATOMIC_MOVE);
          }
        }
      } catch (NoSuchFileException _) {
        // another JVM's test has deleted it between the two calls; its own reset restores it
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }

  /** Lets contexts open again, as in a new process, after an error that ended CUDA in this one. */
  static void revive() {
    call("emu_revive");
  }

  /**
   * What the driver was asked for since {@link #resetCalls}.
   *
   * @param all calls
   * @param objects streams, events and executable graphs that were made
   * @param waits for all that the context has to do
   * @param early kernels that started while the one before them ran
   */
  public record Calls(
      long all,
      long allocations,
      long frees,
      long pinned,
      long unpinned,
      long captures,
      long objects,
      long waits,
      long early) {}

  /** The counts so far. */
  public static Calls calls() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment n = arena.allocate(ValueLayout.JAVA_LONG, 9);
      call("emu_calls", n);
      long[] c = n.toArray(ValueLayout.JAVA_LONG);
      return new Calls(c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8]);
    }
  }

  /** Counts from 0 again. */
  public static void resetCalls() {
    call("emu_reset_stats");
  }

  /** Whether no host memory can be pinned from now on. */
  public static void refusePinned(boolean on) {
    call("emu_refuse_pinned", on ? 1 : 0);
  }

  /** A card of so many bytes, of which a context and modules take their part as on a real one. */
  public static void memory(long bytes) {
    call("emu_memory", bytes);
  }

  /** Lets the card disappear with a CUDA error, after so many calls that succeed. */
  public static void loseCard(long after, int error) {
    call("emu_lose_card", after, error);
  }

  /** Kernels with this in their names do nothing from now on; null: all work. */
  public static void kernelsOff(@Nullable String part) {
    try (Arena arena = Arena.ofConfined()) {
      call("emu_kernels_off", part == null ? MemorySegment.NULL : arena.allocateFrom(part));
    }
  }

  /** An error of the driver that nobody has asked about; empty if there is none. */
  static String unreported() {
    MemorySegment text = (MemorySegment) call(ValueLayout.ADDRESS, "emu_unreported");
    String unreported = text.address() == 0 ? "" : text.reinterpret(1 << 16).getString(0);
    call("emu_forget_errors");
    return unreported;
  }

  /** True if the driver of this process is the emulator. */
  static boolean isDriver() {
    try {
      return library().find("emu_card").isPresent();
    } catch (IllegalArgumentException e) { // no driver at all
      return false;
    }
  }

  /**
   * Another card from now on; what is below 0 stays. Of that memory, nothing is taken but what is
   * allocated.
   */
  public static void card(int computeCapability, int driver, int devices, long memory) {
    call("emu_card", computeCapability, driver, devices, memory);
  }

  /** Lets an allocation fail, after so many that succeed. */
  public static void failAllocation(long after) {
    call("emu_fail_allocation", after);
  }

  /** True if the allocation that is to fail has not come yet. */
  public static boolean failureIsToCome() {
    return (long) call(ValueLayout.JAVA_LONG, "emu_allocations_before_failure") >= 0;
  }

  /** Lets a kernel end its context with a CUDA error, after so many kernels that succeed. */
  public static void failKernel(long after, int error) {
    call("emu_fail_kernel", after, error);
  }

  /** Device allocations that were not freed, in the whole process. */
  public static int liveAllocations() {
    return (int) call("emu_live_allocations");
  }

  /** Bytes of them. */
  public static long usedMemory() {
    return (long) call(ValueLayout.JAVA_LONG, "emu_used_memory");
  }

  private static SymbolLookup library() {
    return SymbolLookup.libraryLookup("libcuda.so.1", Arena.global());
  }

  private static Object call(String name, Object... arguments) {
    return call(ValueLayout.JAVA_INT, name, arguments);
  }

  private static Object call(ValueLayout result, String name, Object... arguments) {
    ValueLayout[] types = new ValueLayout[arguments.length];
    for (int i = 0; i < types.length; i++) {
      types[i] =
          switch (arguments[i]) {
            case Long _ -> ValueLayout.JAVA_LONG;
            case MemorySegment _ -> ValueLayout.ADDRESS;
            default -> ValueLayout.JAVA_INT;
          };
    }
    try {
      return Linker.nativeLinker()
          .downcallHandle(library().findOrThrow(name), FunctionDescriptor.of(result, types))
          .invokeWithArguments(arguments);
    } catch (Throwable e) { // declared by every native call
      throw new IllegalStateException(name, e);
    }
  }
}
