package dev.loupe.cuda.driver;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/**
 * The NVIDIA driver of this machine, as far as it says of itself.
 *
 * <p>Asked through FFM and not through JCuda, whose native library cannot even be loaded where
 * there is no driver.
 *
 * @param version CUDA version that the driver supports, e.g. 13000 for 13.0; 0 where none is
 *     installed
 * @param cards names of the GPUs, in the driver's order
 * @param problem why no card can be used; empty if one can
 */
public record CudaDriver(int version, List<String> cards, String problem) {
  /** The library that the driver brings. */
  static final String LIBRARY =
      System.getProperty("os.name", "").startsWith("Windows") ? "nvcuda.dll" : "libcuda.so.1";

  private static final String NO_CARD = "no card";
  private static final int NAME_BYTES = 256;
  private static final int NO_DEVICE = 100; // CUDA_ERROR_NO_DEVICE

  public CudaDriver {
    cards = List.copyOf(cards);
  }

  /** Asks the driver; never fails. */
  public static CudaDriver find() {
    return library()
        .map(CudaDriver::ask)
        .orElseGet(() -> new CudaDriver(0, List.of(), "not found (%s)".formatted(LIBRARY)));
  }

  /** The driver's functions. It stays loaded: it may have threads of its own once initialised. */
  public static Optional<SymbolLookup> library() {
    return library(LIBRARY);
  }

  /**
   * A function of the driver that JCuda lacks; empty where this driver is too old for it, or there
   * is none.
   */
  public static Optional<MethodHandle> function(String name, FunctionDescriptor type) {
    return library()
        .flatMap(driver -> driver.find(name))
        .map(symbol -> Linker.nativeLinker().downcallHandle(symbol, type));
  }

  /** A library of the system's, likewise. */
  public static Optional<SymbolLookup> library(String name) {
    try {
      return Optional.of(SymbolLookup.libraryLookup(name, Arena.global()));
    } catch (IllegalArgumentException e) {
      return Optional.empty();
    }
  }

  private static CudaDriver ask(SymbolLookup driver) {
    ComputeCache.prepare();
    try (Arena arena = Arena.ofConfined()) {
      int rc = call(driver, "cuInit", 0);
      MemorySegment out = arena.allocate(ValueLayout.JAVA_INT);
      int version =
          call(driver, "cuDriverGetVersion", out) == 0 ? out.get(ValueLayout.JAVA_INT, 0) : 0;
      if (rc != 0 && rc != NO_DEVICE) {
        return new CudaDriver(version, List.of(), "cuInit failed: " + words(driver, rc, arena));
      }
      List<String> cards = new ArrayList<>();
      boolean counted = rc == 0 && call(driver, "cuDeviceGetCount", out) == 0;
      int count = counted ? out.get(ValueLayout.JAVA_INT, 0) : 0;
      MemorySegment name = arena.allocate(NAME_BYTES);
      for (int i = 0; i < count; i++) {
        boolean named = call(driver, "cuDeviceGetName", name, NAME_BYTES - 1, i) == 0;
        cards.add(named ? name.getString(0) : "unnamed");
      }
      return new CudaDriver(version, cards, cards.isEmpty() ? NO_CARD : "");
    }
  }

  /** What the driver says of an error. */
  private static String words(SymbolLookup driver, int rc, Arena arena) {
    MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
    return call(driver, "cuGetErrorString", rc, out) == 0
        ? "%s (error %d)"
            .formatted(out.get(ValueLayout.ADDRESS, 0).reinterpret(1 << 16).getString(0), rc)
        : "error %d".formatted(rc);
  }

  /** Why cards that may be there can't be used; empty if one can, there is none, or no driver. */
  public String failure() {
    return version == 0 || problem.equals(NO_CARD) ? "" : problem;
  }

  /** One line for people. */
  public String summary() {
    if (version == 0) {
      return problem;
    }
    String found = "CUDA " + dotted(version);
    return found + ", " + (problem.isEmpty() ? String.join(", ", cards) : problem);
  }

  /** A CUDA version as people write it, e.g. 12.4. */
  public static String dotted(int version) {
    return "%d.%d".formatted(version / 1000, version % 1000 / 10);
  }

  /** The result code of a function of the library, -1 if the library lacks it. */
  public static int call(SymbolLookup driver, String function, Object... arguments) {
    ValueLayout[] layouts = new ValueLayout[arguments.length];
    for (int i = 0; i < arguments.length; i++) {
      layouts[i] =
          arguments[i] instanceof MemorySegment ? ValueLayout.ADDRESS : ValueLayout.JAVA_INT;
    }
    return driver
        .find(function)
        .map(
            symbol -> {
              try {
                return (int)
                    Linker.nativeLinker()
                        .downcallHandle(
                            symbol, FunctionDescriptor.of(ValueLayout.JAVA_INT, layouts))
                        .invokeWithArguments(arguments);
              } catch (Throwable e) { // declared by every native call
                throw new IllegalStateException(function, e);
              }
            })
        .orElse(-1);
  }
}
