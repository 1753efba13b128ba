package dev.loupe.weights;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Locale;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * Element types of ggml's files, by their numbers there. What the bytes of a block mean is in
 * {@link GgmlBlocks}.
 *
 * <p>Source: the table {@code ggml_type} of ggml's docs/gguf.md.
 */
public enum GgmlType {
  /** IEEE 754 binary32. */
  F32(0, 1, 4),
  /** IEEE 754 binary16. */
  F16(1, 1, 2),
  /** Blocks of 32 weights of 4 bits. */
  Q4_0(2, 32, 18),
  Q4_1(3, 32, 20),
  /** Blocks of 32 weights of 5 bits. */
  Q5_0(6, 32, 22),
  Q5_1(7, 32, 24),
  /**
   * Blocks of 32 weights in 34 bytes: a scale d in binary16, then 32 signed bytes q; a weight is d
   * q. d is the largest magnitude of the block divided by 127.
   */
  Q8_0(8, 32, 34),
  /** Blocks of 256 weights, in groups of 16 or 32 whose scales are quantised too. */
  Q2_K(10, 256, 84),
  Q3_K(11, 256, 110),
  Q4_K(12, 256, 144),
  Q5_K(13, 256, 176),
  Q6_K(14, 256, 210),
  /** Blocks of 32 weights, each one of 16 values. */
  IQ4_NL(20, 32, 18),
  /** IEEE 754 binary64. */
  F64(28, 1, 8),
  /** The upper half of a binary32. */
  BF16(30, 1, 2);

  private static final int LARGEST = 127;

  private final int number;
  private final int blockElements;
  private final int blockBytes;

  GgmlType(int number, int blockElements, int blockBytes) {
    this.number = number;
    this.blockElements = blockElements;
    this.blockBytes = blockBytes;
  }

  /**
   * The type with this name in small letters, of those that can be written.
   *
   * @throws IllegalArgumentException if there is none; the message lists those there are
   */
  public static GgmlType named(String name) {
    for (GgmlType type : values()) {
      if (type.isWritten() && type.toString().equals(name)) {
        return type;
      }
    }
    String written =
        Arrays.stream(values())
            .filter(GgmlType::isWritten)
            .map(GgmlType::toString)
            .collect(Collectors.joining(", "));
    throw new IllegalArgumentException("no type \"%s\"; there are %s".formatted(name, written));
  }

  /** The type with this number, null if it is none that can be read. */
  static @Nullable GgmlType numbered(int number) {
    for (GgmlType type : values()) {
      if (type.number == number) {
        return type;
      }
    }
    return null;
  }

  @Override
  public String toString() {
    return name().toLowerCase(Locale.ROOT);
  }

  /** Whether {@link #encode} knows it; all can be read. */
  boolean isWritten() {
    return switch (this) {
      case F32, F16, Q8_0 -> true;
      default -> false;
    };
  }

  int number() {
    return number;
  }

  /** Elements that are stored together; a row holds whole blocks. */
  int blockElements() {
    return blockElements;
  }

  /** Bytes that they take. */
  int blockBytes() {
    return blockBytes;
  }

  /** Bytes of so many elements, in whole blocks. */
  long bytes(long elements) {
    return Math.multiplyExact(elements / blockElements, blockBytes);
  }

  /**
   * Appends elements, rounded to the nearest.
   *
   * @param count whole blocks
   * @param to little-endian
   * @return the index of the first element that the type can't hold, -1 if it holds all; what is in
   *     {@code to} is then of no use
   */
  int encode(float[] from, int offset, int count, ByteBuffer to) {
    switch (this) {
      case F32 -> {
        for (int i = offset; i < offset + count; i++) {
          to.putFloat(from[i]);
        }
      }
      case F16 -> {
        for (int i = offset; i < offset + count; i++) {
          short half = Float.floatToFloat16(from[i]);
          if (!Float.isFinite(Float.float16ToFloat(half))) {
            return i;
          }
          to.putShort(half);
        }
      }
      case Q8_0 -> {
        for (int i = offset; i < offset + count; i += blockElements) {
          int bad = encodeBlock(from, i, to);
          if (bad >= 0) {
            return bad;
          }
        }
      }
      default -> throw new IllegalStateException(this + " is only read");
    }
    return -1;
  }

  private int encodeBlock(float[] from, int offset, ByteBuffer to) {
    int largest = offset;
    for (int i = offset; i < offset + blockElements; i++) {
      if (!Float.isFinite(from[i])) {
        return i;
      }
      largest = Math.abs(from[i]) > Math.abs(from[largest]) ? i : largest;
    }
    float scale = Math.abs(from[largest]) / LARGEST;
    short half = Float.floatToFloat16(scale);
    if (!Float.isFinite(Float.float16ToFloat(half))) {
      return largest;
    }
    to.putShort(half);
    // divided by the scale before its rounding, as ggml does, so that both write the same bytes
    float inverse = scale == 0 ? 0 : 1 / scale;
    for (int i = offset; i < offset + blockElements; i++) {
      double scaled = from[i] * inverse;
      to.put((byte) (scaled + Math.copySign(0.5, scaled))); // to the nearest, ties away from 0
    }
    return -1;
  }
}
