package dev.loupe.cuda.driver;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.util.Arrays;

/**
 * A cubin or PTX text in native memory, as the driver takes it. The driver is told no size, so what
 * it would read is held here to what there is: a cubin is an ELF file (Tool Interface Standard,
 * Executable and Linking Format 1.2, for 64 bits), PTX ends with a zero.
 *
 * <p>In native memory, since a Java array would stay where it is while the driver compiles, and a
 * garbage collector may have to wait for that.
 */
public final class KernelImage {
  private static final byte[] ELF = {0x7f, 'E', 'L', 'F'};
  private static final int HEADER = 64;
  private static final int SECTION = 64;
  private static final int SEGMENT = 56;
  private static final int NO_BITS = 8; // a section without bytes in the file

  // where the header says how its tables lie
  private static final int SEGMENTS_AT = 32;
  private static final int SECTIONS_AT = 40;
  private static final int SEGMENT_SIZE = 54; // then how many, the size of a section, how many

  private static final ValueLayout.OfShort SHORT =
      ValueLayout.JAVA_SHORT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final ValueLayout.OfInt INT =
      ValueLayout.JAVA_INT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final ValueLayout.OfLong LONG =
      ValueLayout.JAVA_LONG_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

  private final MemorySegment memory; // a zero more than the image

  private KernelImage(MemorySegment memory) {
    this.memory = memory;
  }

  /**
   * Copies an image.
   *
   * @throws GpuException if it is neither a whole cubin nor a text
   */
  public static KernelImage copy(byte[] image, Arena arena) {
    MemorySegment memory = arena.allocate(image.length + 1L, Long.BYTES);
    MemorySegment.copy(image, 0, memory, ValueLayout.JAVA_BYTE, 0, image.length);
    if (image.length >= ELF.length && Arrays.equals(image, 0, ELF.length, ELF, 0, ELF.length)) {
      requireWhole(memory.asSlice(0, image.length));
    } else if (!isText(image)) {
      throw new GpuException(
          "the image of %d bytes is neither a cubin nor PTX".formatted(image.length));
    }
    return new KernelImage(memory);
  }

  /** Its address. */
  public HostPointer pointer() {
    return new HostPointer(memory.address());
  }

  private static boolean isText(byte[] image) {
    int end = image.length;
    while (end > 0 && image[end - 1] == 0) { // it may end with a zero of its own
      end--;
    }
    for (int i = 0; i < end; i++) {
      if (image[i] == 0) {
        return false;
      }
    }
    return end > 0 && image[0] >= '\t' && image[0] < 0x7f;
  }

  private static void requireWhole(MemorySegment elf) {
    long bytes = elf.byteSize();
    boolean whole = bytes >= HEADER;
    if (whole) {
      int segments = Short.toUnsignedInt(elf.get(SHORT, SEGMENT_SIZE + 2));
      int sections = Short.toUnsignedInt(elf.get(SHORT, SEGMENT_SIZE + 6));
      long segmentsAt = elf.get(LONG, SEGMENTS_AT);
      long sectionsAt = elf.get(LONG, SECTIONS_AT);
      whole =
          (segments == 0 || elf.get(SHORT, SEGMENT_SIZE) == SEGMENT)
              && (sections == 0 || elf.get(SHORT, SEGMENT_SIZE + 4) == SECTION)
              && lies(segmentsAt, (long) segments * SEGMENT, bytes)
              && lies(sectionsAt, (long) sections * SECTION, bytes);
      for (int i = 0; whole && i < segments; i++) {
        long at = segmentsAt + (long) i * SEGMENT;
        whole = lies(elf.get(LONG, at + 8), elf.get(LONG, at + 32), bytes);
      }
      for (int i = 0; whole && i < sections; i++) {
        long at = sectionsAt + (long) i * SECTION;
        whole =
            elf.get(INT, at + 4) == NO_BITS
                || lies(elf.get(LONG, at + 24), elf.get(LONG, at + 32), bytes);
      }
    }
    if (!whole) {
      throw new GpuException("the cubin of %d bytes is not whole".formatted(bytes));
    }
  }

  private static boolean lies(long at, long count, long bytes) {
    return count == 0 || (at >= 0 && count > 0 && count <= bytes && at <= bytes - count);
  }
}
