package dev.loupe.ops.cpu;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.util.Locale;
import org.jspecify.annotations.Nullable;

/**
 * Large memory for weights. On Linux it asks for huge pages, of which a product that streams
 * through hundreds of megabytes needs far fewer translations, and comes without being zeroed twice;
 * and files that were read once through a mapping give their pages back.
 */
final class Pages {
  private static final long HUGE = 2L << 20;
  private static final long SMALL = 4096;
  private static final int PROT_READ_WRITE = 3;
  private static final int MAP_PRIVATE_ANONYMOUS = 0x22;
  private static final int MADV_DONTNEED = 4;
  private static final int MADV_HUGEPAGE = 14;

  private static final @Nullable MethodHandle MMAP =
      find(
          "mmap",
          FunctionDescriptor.of(
              ValueLayout.JAVA_LONG,
              ValueLayout.JAVA_LONG,
              ValueLayout.JAVA_LONG,
              ValueLayout.JAVA_INT,
              ValueLayout.JAVA_INT,
              ValueLayout.JAVA_INT,
              ValueLayout.JAVA_LONG));
  private static final @Nullable MethodHandle MUNMAP =
      find(
          "munmap",
          FunctionDescriptor.of(
              ValueLayout.JAVA_INT, ValueLayout.JAVA_LONG, ValueLayout.JAVA_LONG));
  private static final @Nullable MethodHandle MADVISE =
      find(
          "madvise",
          FunctionDescriptor.of(
              ValueLayout.JAVA_INT,
              ValueLayout.JAVA_LONG,
              ValueLayout.JAVA_LONG,
              ValueLayout.JAVA_INT));

  private Pages() {}

  private static @Nullable MethodHandle find(String name, FunctionDescriptor type) {
    if (!System.getProperty("os.name", "").toLowerCase(Locale.ROOT).equals("linux")) {
      return null; // the numbers above are Linux's
    }
    Linker linker = Linker.nativeLinker();
    return linker
        .defaultLookup()
        .find(name)
        .map(address -> linker.downcallHandle(address, type))
        .orElse(null);
  }

  /**
   * Memory of zeros that lives as long as {@code arena}, at a multiple of 64 bytes.
   *
   * @throws OutOfMemoryError if there is none
   */
  static MemorySegment allocate(Arena arena, long bytes) {
    if (MMAP == null || MUNMAP == null || MADVISE == null || bytes < HUGE) {
      return arena.allocate(bytes, 64);
    }
    try {
      long room = bytes + HUGE; // so that a multiple of a huge page lies in it
      long start =
          (long) MMAP.invokeExact(0L, room, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0L);
      if (start == -1) {
        throw new OutOfMemoryError("no room for %d MB of weights".formatted(bytes >> 20));
      }
      long address = (start + HUGE - 1) / HUGE * HUGE;
      int advised = (int) MADVISE.invokeExact(address, bytes / HUGE * HUGE, MADV_HUGEPAGE);
      assert advised <= 0; // a kernel without huge pages refuses, which is no harm
      return MemorySegment.ofAddress(address)
          .reinterpret(bytes, arena, segment -> unmap(start, room));
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new IllegalStateException(e);
    }
  }

  private static void unmap(long start, long bytes) {
    try {
      if (MUNMAP != null && (int) MUNMAP.invokeExact(start, bytes) != 0) {
        throw new IllegalStateException("munmap of %d bytes".formatted(bytes));
      }
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new IllegalStateException(e);
    }
  }

  /** Tells the system that a mapped file's part will hardly be read again: it stays readable. */
  static void forget(MemorySegment part) {
    if (MADVISE == null || !part.isMapped()) {
      return; // of other memory the content would be lost
    }
    long first = (part.address() + SMALL - 1) / SMALL * SMALL;
    long bytes = (part.address() + part.byteSize()) / SMALL * SMALL - first;
    try {
      if (bytes > 0) {
        int advised = (int) MADVISE.invokeExact(first, bytes, MADV_DONTNEED);
        assert advised <= 0; // advice that is not taken is no harm
      }
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new IllegalStateException(e);
    }
  }
}
