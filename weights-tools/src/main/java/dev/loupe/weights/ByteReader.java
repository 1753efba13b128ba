package dev.loupe.weights;

import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;

/**
 * Takes little-endian numbers from a stretch of a file, one after the other, and never reads beyond
 * its end.
 */
final class ByteReader {
  static final ValueLayout.OfInt U32 =
      ValueLayout.JAVA_INT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final ValueLayout.OfLong U64 =
      ValueLayout.JAVA_LONG_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

  private final MappedFile file;
  private final String what;
  private long at;
  private final long end;

  /**
   * @param what is read, for messages, e.g. {@code "the footer"}
   * @param begin of the stretch, within the file
   * @param end of the stretch, within the file
   */
  ByteReader(MappedFile file, String what, long begin, long end) {
    if (begin < 0 || begin > end || end > file.bytes().byteSize()) {
      throw new IndexOutOfBoundsException("%d to %d of %s".formatted(begin, end, file.path()));
    }
    this.file = file;
    this.what = what;
    this.at = begin;
    this.end = end;
  }

  /** Where in the file the next byte is. */
  long at() {
    return at;
  }

  boolean atEnd() {
    return at == end;
  }

  /** Goes past {@code count} bytes and says where they start. */
  long skip(long count) throws CheckpointException {
    if (count < 0 || count > end - at) {
      throw new CheckpointException(
          "%s: %s is cut short or damaged: at byte %d it calls for %s more bytes and has %d"
              .formatted(file.path(), what, at, Long.toUnsignedString(count), end - at));
    }
    long from = at;
    at += count;
    return from;
  }

  int u8() throws CheckpointException {
    return file.byteAt(skip(1)) & 0xFF;
  }

  int u32() throws CheckpointException {
    return file.bytes().get(U32, skip(Integer.BYTES));
  }

  long u64() throws CheckpointException {
    return file.bytes().get(U64, skip(Long.BYTES));
  }

  /** A number in groups of 7 bits, the lowest first; the top bit says that another follows. */
  long varint() throws CheckpointException {
    long from = at;
    long value = 0;
    for (int shift = 0; shift < Long.SIZE; shift += 7) {
      long b = u8();
      value |= (b & 0x7F) << shift;
      if (b < 0x80) {
        return value;
      }
    }
    throw damaged(from, "a number of more than 10 bytes");
  }

  /** That there is something wrong at a place in the file. */
  CheckpointException damaged(long where, String fault) {
    return new CheckpointException(
        "%s: %s is damaged at byte %d: %s".formatted(file.path(), what, where, fault));
  }
}
