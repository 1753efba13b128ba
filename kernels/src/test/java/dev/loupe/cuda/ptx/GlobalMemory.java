package dev.loupe.cuda.ptx;

import dev.loupe.cuda.ptx.text.PtxException;
import java.lang.foreign.MemorySegment;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.LongFunction;
import org.jspecify.annotations.Nullable;

/** The memory that all blocks see: ranges of addresses, and nothing between them. */
public final class GlobalMemory {
  /**
   * Memory from an address on.
   *
   * @param start its address for kernels
   */
  public record Range(long start, MemorySegment bytes) {
    boolean has(long address, long size) {
      return address >= start && address + size <= start + bytes.byteSize();
    }
  }

  private static final long FIRST = 0x7f00_0000_0000L;
  private static final long GAP = 4096; // so that what is out of range is out of every range

  private final TreeMap<Long, Range> ranges = new TreeMap<>();
  private final LongFunction<@Nullable Range> others;
  private Range last = new Range(0, MemorySegment.NULL);
  private long next = FIRST;

  /** Memory that {@link #allocate} alone gives. */
  public GlobalMemory() {
    this(_ -> null);
  }

  /**
   * Memory that lies elsewhere too.
   *
   * @param others finds the range of an address that was not allocated here, or null
   */
  public GlobalMemory(LongFunction<@Nullable Range> others) {
    this.others = others;
  }

  /** New memory of zeros; its address. */
  public long allocate(long size) {
    return add(MemorySegment.ofArray(new byte[Math.toIntExact(size)]));
  }

  /** Memory of an array, which kernels read and write; its address. */
  public long add(MemorySegment bytes) {
    long start = next;
    ranges.put(start, new Range(start, bytes));
    next += (bytes.byteSize() / GAP + 2) * GAP;
    return start;
  }

  /** The range with these bytes. */
  Range range(long address, long size) {
    if (!last.has(address, size)) {
      last = find(address, size);
    }
    return last;
  }

  private Range find(long address, long size) {
    Map.Entry<Long, Range> below = ranges.floorEntry(address);
    Range range = below == null ? null : below.getValue();
    if (range == null || !range.has(address, size)) {
      range = others.apply(address);
    }
    if (range == null || !range.has(address, size)) {
      throw new PtxException(
          "%d bytes at address %x are in no allocation".formatted(size, address));
    }
    return range;
  }
}
