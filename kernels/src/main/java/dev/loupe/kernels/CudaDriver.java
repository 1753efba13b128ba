package dev.loupe.kernels;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;

/**
 * The NVIDIA driver of this machine, as far as it says of itself.
 *
 * @param version CUDA version that the driver supports, e.g. 13000 for 13.0; 0 where none is
 *     installed
 * @param cards names of the GPUs, in the driver's order
 * @param problem why no card can be used; empty if one can
 */
public record CudaDriver(int version, List<String> cards, String problem) {
  private static final String LIBRARY = "libcuda.so.1";
  private static final int NAME_BYTES = 256;

  public CudaDriver {
    cards = List.copyOf(cards);
  }

  /** Asks the driver; never fails. */
  public static CudaDriver find() {
    try (Arena arena = Arena.ofConfined()) {
      SymbolLookup driver;
      try {
        driver = SymbolLookup.libraryLookup(LIBRARY, arena);
      } catch (IllegalArgumentException e) {
        return new CudaDriver(0, List.of(), "not found (%s)".formatted(LIBRARY));
      }
      return ask(driver, arena);
    }
  }

  private static CudaDriver ask(SymbolLookup driver, Arena arena) {
    int rc = call(driver, "cuInit", 0);
    MemorySegment out = arena.allocate(ValueLayout.JAVA_INT);
    int version =
        call(driver, "cuDriverGetVersion", out) == 0 ? out.get(ValueLayout.JAVA_INT, 0) : 0;
    if (rc != 0) {
      return new CudaDriver(version, List.of(), "cuInit failed with error %d".formatted(rc));
    }
    List<String> cards = new ArrayList<>();
    int count = call(driver, "cuDeviceGetCount", out) == 0 ? out.get(ValueLayout.JAVA_INT, 0) : 0;
    MemorySegment name = arena.allocate(NAME_BYTES);
    for (int i = 0; i < count; i++) {
      if (call(driver, "cuDeviceGetName", name, NAME_BYTES, i) == 0) {
        cards.add(name.getString(0));
      }
    }
    return new CudaDriver(version, cards, cards.isEmpty() ? "no card" : "");
  }

  /** One line for people. */
  public String summary() {
    if (version == 0) {
      return problem;
    }
    String found = "CUDA %d.%d".formatted(version / 1000, version % 1000 / 10);
    return found + ", " + (problem.isEmpty() ? String.join(", ", cards) : problem);
  }

  /** The result code of a driver function, -1 if the driver lacks it. */
  private static int call(SymbolLookup driver, String function, Object... arguments) {
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
