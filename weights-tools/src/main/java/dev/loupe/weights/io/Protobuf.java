package dev.loupe.weights.io;

import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;

/**
 * The fields of a protobuf message, one after the other, as they are stored. What a field means,
 * and that unknown ones are passed over, is for the caller.
 *
 * <p>Source: the wire format in the documentation of Protocol Buffers.
 */
public final class Protobuf {
  private static final int VARINT = 0;
  private static final int FIXED64 = 1;
  private static final int LENGTH = 2;
  private static final int FIXED32 = 5;

  private final InputFile file;
  private final String what;
  private final ByteReader in;
  private int wireType;
  private long value; // a number, or where the bytes start
  private long length;

  /**
   * @param what the message, for errors
   * @param begin of the message in the file
   * @param end of the message in the file
   */
  public Protobuf(InputFile file, String what, long begin, long end) {
    this.file = file;
    this.what = what;
    this.in = new ByteReader(file, what, begin, end);
  }

  /** The number of the next field, whose value is then at hand; 0 at the end. */
  public int next() throws CheckpointException {
    if (in.atEnd()) {
      return 0;
    }
    long from = in.at();
    long tag = in.varint();
    wireType = (int) tag & 7;
    long number = tag >>> 3;
    if (number < 1 || number > (1 << 29) - 1) {
      throw in.damaged(from, "there is no field %s".formatted(Long.toUnsignedString(number)));
    }
    switch (wireType) {
      case VARINT -> value = in.varint();
      case FIXED64 -> value = in.u64();
      case FIXED32 -> value = in.u32();
      case LENGTH -> {
        length = in.varint();
        value = in.skip(length);
      }
      default -> throw in.damaged(from, "there is no wire type %d".formatted(wireType));
    }
    return (int) number;
  }

  /** The field's value, stored as a varint. */
  public long number() throws CheckpointException {
    expect(VARINT, "a number");
    return value;
  }

  /** The field's value, stored in 4 bytes. */
  public int fixed32() throws CheckpointException {
    expect(FIXED32, "a number of 4 bytes");
    return (int) value;
  }

  /** The field's value, a message itself. */
  public Protobuf message() throws CheckpointException {
    expect(LENGTH, "a message");
    return new Protobuf(file, what, value, value + length);
  }

  /** The field's value, bytes of any length. */
  public byte[] bytes() throws CheckpointException {
    expect(LENGTH, "bytes");
    return file.bytes().asSlice(value, length).toArray(ValueLayout.JAVA_BYTE);
  }

  /** The field's value, text in UTF-8. */
  public String string() throws CheckpointException {
    return new String(bytes(), StandardCharsets.UTF_8);
  }

  private void expect(int expected, String kind) throws CheckpointException {
    if (wireType != expected) {
      throw in.damaged(in.at(), "the field that ends here is not %s".formatted(kind));
    }
  }
}
