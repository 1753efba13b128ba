package dev.loupe.cuda.ptx;

import dev.loupe.cuda.ptx.text.PtxException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** Reads and writes of 1 to 8 bytes, which have to be aligned as the ISA asks. */
final class Memory {
  private Memory() {}

  /** The low bits of the result. */
  static long load(GlobalMemory.Range range, long address, int size) {
    MemorySegment bytes = range.bytes();
    long at = address - range.start();
    return switch (size) {
      case 1 -> bytes.get(ValueLayout.JAVA_BYTE, at) & 0xffL;
      case 2 -> bytes.get(ValueLayout.JAVA_SHORT_UNALIGNED, at) & 0xffffL;
      case 4 -> bytes.get(ValueLayout.JAVA_INT_UNALIGNED, at) & 0xffff_ffffL;
      default -> bytes.get(ValueLayout.JAVA_LONG_UNALIGNED, at);
    };
  }

  static void store(GlobalMemory.Range range, long address, int size, long value) {
    MemorySegment bytes = range.bytes();
    long at = address - range.start();
    switch (size) {
      case 1 -> bytes.set(ValueLayout.JAVA_BYTE, at, (byte) value);
      case 2 -> bytes.set(ValueLayout.JAVA_SHORT_UNALIGNED, at, (short) value);
      case 4 -> bytes.set(ValueLayout.JAVA_INT_UNALIGNED, at, (int) value);
      default -> bytes.set(ValueLayout.JAVA_LONG_UNALIGNED, at, value);
    }
  }

  static void requireAligned(long address, int size) {
    if ((address & (size - 1)) != 0) {
      throw new PtxException(
          "address %x of %d bytes is no multiple of that".formatted(address, size));
    }
  }
}
