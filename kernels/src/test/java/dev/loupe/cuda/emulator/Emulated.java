package dev.loupe.cuda.emulator;

import dev.loupe.cuda.driver.CudaDriver;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;

/** What the emulator counted while kernels ran. */
public final class Emulated {
  /** Counts that emu_stats gives: launches, blocks, switches, collectives, then these two. */
  private static final int LDMATRIX_CONFLICTS = 4;

  private static final int SHARED_CONFLICTS = 5;
  private static final int COUNTS = 8;

  private Emulated() {}

  public static void resetStatistics() {
    call("emu_reset_stats");
  }

  /** Trips to shared memory beyond the first, of ldmatrix and of 16-byte accesses. */
  public static long bankConflicts() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment counts = arena.allocate(ValueLayout.JAVA_LONG, COUNTS);
      call("emu_stats", counts);
      return counts.getAtIndex(ValueLayout.JAVA_LONG, LDMATRIX_CONFLICTS)
          + counts.getAtIndex(ValueLayout.JAVA_LONG, SHARED_CONFLICTS);
    }
  }

  private static void call(String name, MemorySegment... pointers) {
    ValueLayout[] layouts = new ValueLayout[pointers.length];
    Arrays.fill(layouts, ValueLayout.ADDRESS);
    try {
      int rc =
          (int)
              Linker.nativeLinker()
                  .downcallHandle(
                      CudaDriver.library().orElseThrow().findOrThrow(name),
                      FunctionDescriptor.of(ValueLayout.JAVA_INT, layouts))
                  .invokeWithArguments((Object[]) pointers);
      if (rc != 0) {
        throw new IllegalStateException(name + " returned " + rc);
      }
    } catch (Throwable e) { // declared by every native call
      throw new IllegalStateException(name, e);
    }
  }
}
