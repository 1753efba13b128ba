package dev.loupe.weights.io;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.nio.charset.CharacterCodingException;

/**
 * Takes little-endian numbers from a stretch of a file, one after the other, and never reads beyond
 * its end.
 */
public final class ByteReader {
  public static final ValueLayout.OfInt U32 =
      ValueLayout.JAVA_INT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final ValueLayout.OfShort U16 =
      ValueLayout.JAVA_SHORT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final ValueLayout.OfLong U64 =
      ValueLayout.JAVA_LONG_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

  private final InputFile file;
  private final String what;
  private long at;
  private final long end;

  /**
   * @param what is read, for messages, e.g. {@code "the footer"}
   * @param begin of the stretch, within the file
   * @param end of the stretch, within the file
   */
  public ByteReader(InputFile file, String what, long begin, long end) {
    if (begin < 0 || begin > end || end > file.bytes().byteSize()) {
      throw new IndexOutOfBoundsException("%d to %d of %s".formatted(begin, end, file.path()));
    }
    this.file = file;
    this.what = what;
    this.at = begin;
    this.end = end;
  }

  /** Where in the file the next byte is. */
  public long at() {
    return at;
  }

  public boolean atEnd() {
    return at == end;
  }

  /** Goes past {@code count} bytes and says where they start. */
  public long skip(long count) throws CheckpointException {
    if (count < 0 || count > end - at) {
      throw new CheckpointException(
          "%s: %s is cut short or damaged: at byte %d it calls for %s more bytes and has %d"
              .formatted(file.path(), what, at, Long.toUnsignedString(count), end - at));
    }
    long from = at;
    at += count;
    return from;
  }

  public int u8() throws CheckpointException {
    return file.byteAt(skip(1)) & 0xFF;
  }

  public int u32() throws CheckpointException {
    return file.bytes().get(U32, skip(Integer.BYTES));
  }

  public long u64() throws CheckpointException {
    return file.bytes().get(U64, skip(Long.BYTES));
  }

  public short u16() throws CheckpointException {
    return file.bytes().get(U16, skip(Short.BYTES));
  }

  /**
   * A 32-bit number that is no more than {@code most}.
   *
   * @param of what it counts, for the message
   */
  public int count32(int most, String of) throws CheckpointException {
    return (int) count(Integer.toUnsignedLong(u32()), most, Integer.BYTES, of);
  }

  /** Likewise of 64 bits. */
  public int count64(int most, String of) throws CheckpointException {
    return (int) count(u64(), most, Long.BYTES, of);
  }

  private long count(long value, int most, int size, String of) throws CheckpointException {
    if (value < 0 || value > most) {
      throw damaged(
          at - size, "%s is %s, more than %d".formatted(of, Long.toUnsignedString(value), most));
    }
    return value;
  }

  /**
   * So many bytes as text.
   *
   * @param of what they are, for the message
   */
  public String utf8(int count, String of) throws CheckpointException {
    long from = skip(count);
    try {
      return UTF_8.newDecoder().decode(file.bytes().asSlice(from, count).asByteBuffer()).toString();
    } catch (CharacterCodingException e) {
      throw damaged(from, of + " is not UTF-8");
    }
  }

  /**
   * Goes on to the next multiple of {@code alignment} in the file, or to the end if it is nearer.
   */
  public void align(int alignment) {
    at = Math.min(Math.ceilDiv(at, alignment) * alignment, end);
  }

  /** A number in groups of 7 bits, the lowest first; the top bit says that another follows. */
  public long varint() throws CheckpointException {
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
  public CheckpointException damaged(long where, String fault) {
    return new CheckpointException(
        "%s: %s is damaged at byte %d: %s".formatted(file.path(), what, where, fault));
  }
}
