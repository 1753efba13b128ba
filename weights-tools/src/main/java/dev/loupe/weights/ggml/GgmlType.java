package dev.loupe.weights.ggml;

import dev.loupe.weights.tensor.DType;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
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
  /** Blocks of 256 weights: signs, and magnitudes in fours out of 512 quadruples. */
  IQ3_S(21, 256, 110),
  /** Blocks of 256 weights as those of IQ4_NL, in groups of 32 with scales of 6 bits. */
  IQ4_XS(23, 256, 136),
  /** IEEE 754 binary64. */
  F64(28, 1, 8),
  /** The upper half of a binary32. */
  BF16(30, 1, 2);

  private static final int LARGEST = 127;

  private static final Map<Integer, String> OTHERS =
      Map.ofEntries(
          Map.entry(4, "Q4_2"),
          Map.entry(5, "Q4_3"),
          Map.entry(9, "Q8_1"),
          Map.entry(15, "Q8_K"),
          Map.entry(16, "IQ2_XXS"),
          Map.entry(17, "IQ2_XS"),
          Map.entry(18, "IQ3_XXS"),
          Map.entry(19, "IQ1_S"),
          Map.entry(22, "IQ2_S"),
          Map.entry(24, "I8"),
          Map.entry(25, "I16"),
          Map.entry(26, "I32"),
          Map.entry(27, "I64"),
          Map.entry(29, "IQ1_M"),
          Map.entry(31, "Q4_0_4_4"),
          Map.entry(32, "Q4_0_4_8"),
          Map.entry(33, "Q4_0_8_8"),
          Map.entry(34, "TQ1_0"),
          Map.entry(35, "TQ2_0"),
          Map.entry(36, "IQ4_NL_4_4"),
          Map.entry(37, "IQ4_NL_4_8"),
          Map.entry(38, "IQ4_NL_8_8"),
          Map.entry(39, "MXFP4"),
          Map.entry(40, "NVFP4"),
          Map.entry(41, "Q1_0"));

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

  /** The names of those in blocks, for messages. */
  public static String blockTypes() {
    return Arrays.stream(values())
        .filter(type -> type.blockElements > 1)
        .map(GgmlType::name)
        .collect(Collectors.joining(", "));
  }

  /** What ggml calls the type with this number, which may be one that can't be read. */
  static String nameOf(int number) {
    GgmlType readable = numbered(number);
    String name = readable == null ? OTHERS.get(number) : readable.name();
    return "ggml's type " + (name == null ? Integer.toUnsignedString(number) : name);
  }

  @Override
  public String toString() {
    return name().toLowerCase(Locale.ROOT);
  }

  /** Whether {@link #encode} knows it; all can be read. */
  boolean isWritten() {
    return switch (this) {
      case F32, F16, BF16, Q8_0 -> true;
      default -> false;
    };
  }

  public int number() {
    return number;
  }

  /** Elements that are stored together; a row holds whole blocks. */
  public int blockElements() {
    return blockElements;
  }

  /** Bytes that they take. */
  int blockBytes() {
    return blockBytes;
  }

  /** Bytes of so many elements, in whole blocks. */
  public long bytes(long elements) {
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
  public int encode(float[] from, int offset, int count, ByteBuffer to) {
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
      case BF16 -> {
        for (int i = offset; i < offset + count; i++) {
          short half = DType.floatToBf16(from[i]);
          if (!Float.isFinite(DType.bf16ToFloat(half))) {
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
