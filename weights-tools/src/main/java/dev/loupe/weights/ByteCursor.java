package dev.loupe.weights;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Objects;

/**
 * Reads little-endian numbers and strings of a file, one after the other. What would lie beyond the
 * end is refused by name, with the place, before anything is allocated for it.
 */
final class ByteCursor {
  private static final ValueLayout.OfShort SHORT =
      ValueLayout.JAVA_SHORT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final ValueLayout.OfInt INT =
      ValueLayout.JAVA_INT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final ValueLayout.OfLong LONG =
      ValueLayout.JAVA_LONG_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

  private final MappedFile file;
  private final long end;
  private long at;

  ByteCursor(MappedFile file) {
    this(file, 0, file.bytes().byteSize());
  }

  /** Reads a stretch of a file, and nothing beyond its end. */
  ByteCursor(MappedFile file, long begin, long end) {
    Objects.checkFromToIndex(begin, end, file.bytes().byteSize());
    this.file = file;
    this.at = begin;
    this.end = end;
  }

  /** The byte that comes next, from the beginning of the file. */
  long position() {
    return at;
  }

  /** Whether everything has been read. */
  boolean atEnd() {
    return at == end;
  }

  int u8(String what) throws CheckpointException {
    return file.bytes().get(ValueLayout.JAVA_BYTE, take(1, what)) & 0xFF;
  }

  short i16(String what) throws CheckpointException {
    return file.bytes().get(SHORT, take(2, what));
  }

  int i32(String what) throws CheckpointException {
    return file.bytes().get(INT, take(4, what));
  }

  long i64(String what) throws CheckpointException {
    return file.bytes().get(LONG, take(8, what));
  }

  /** An unsigned 32-bit number from 0 to {@code most}. */
  int count32(int most, String what) throws CheckpointException {
    return (int) within(Integer.toUnsignedLong(i32(what)), most, 4, what);
  }

  /** An unsigned 64-bit number from 0 to {@code most}. */
  long count64(long most, String what) throws CheckpointException {
    return within(i64(what), most, 8, what);
  }

  private long within(long value, long most, int size, String what) throws CheckpointException {
    if (value < 0 || value > most) {
      throw new CheckpointException(
          "%s: %s at byte %d is %s, more than %d"
              .formatted(file.path(), what, at - size, Long.toUnsignedString(value), most));
    }
    return value;
  }

  /** A number in groups of 7 bits, the lowest first; the top bit says that another follows. */
  long varint(String what) throws CheckpointException {
    long from = at;
    long value = 0;
    for (int shift = 0; shift < Long.SIZE; shift += 7) {
      long b = u8(what);
      value |= (b & 0x7F) << shift;
      if (b < 0x80) {
        return value;
      }
    }
    throw file.damaged(from, "%s is a number of more than 10 bytes".formatted(what));
  }

  byte[] bytes(int n, String what) throws CheckpointException {
    return segment(n, what).toArray(ValueLayout.JAVA_BYTE);
  }

  /** So many bytes as text. */
  String utf8(int n, String what) throws CheckpointException {
    byte[] bytes = bytes(n, what);
    try {
      return StandardCharsets.UTF_8.newDecoder().decode(java.nio.ByteBuffer.wrap(bytes)).toString();
    } catch (CharacterCodingException e) {
      throw new CheckpointException(
          "%s: %s at byte %d is not UTF-8".formatted(file.path(), what, at - n), e);
    }
  }

  /** So many bytes of the file, in place. */
  MemorySegment segment(long n, String what) throws CheckpointException {
    return file.bytes().asSlice(take(n, what), n);
  }

  void skip(long n, String what) throws CheckpointException {
    take(n, what);
  }

  /** Goes on to the next multiple of {@code alignment}, or to the end if that is nearer. */
  void align(int alignment) {
    at = Math.min(Math.ceilDiv(at, alignment) * alignment, end);
  }

  private long take(long n, String what) throws CheckpointException {
    if (n < 0 || n > end - at) {
      boolean whole = end == file.bytes().byteSize();
      throw new CheckpointException(
          "%s is cut short or damaged: %s at byte %d takes %s bytes, and %s"
              .formatted(
                  file.path(),
                  what,
                  at,
                  Long.toUnsignedString(n),
                  (whole ? "the file has %d" : "what it is part of ends at byte %d")
                      .formatted(end)));
    }
    at += n;
    return at - n;
  }
}
