package dev.loupe.weights.tensor;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import org.jspecify.annotations.Nullable;

/** The element types in which checkpoints store tensors; all little-endian. */
public enum DType {
  /** IEEE 754 binary64. */
  F64(8),
  /** IEEE 754 binary32. */
  F32(4),
  /** IEEE 754 binary16. */
  F16(2),
  /** The upper half of a binary32. */
  BF16(2);

  private static final ValueLayout.OfDouble DOUBLE =
      ValueLayout.JAVA_DOUBLE_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final ValueLayout.OfFloat FLOAT =
      ValueLayout.JAVA_FLOAT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final ValueLayout.OfShort SHORT =
      ValueLayout.JAVA_SHORT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

  private final int bytes;

  DType(int bytes) {
    this.bytes = bytes;
  }

  /** The type with this name, null if there is none. */
  public static @Nullable DType named(String name) {
    for (DType dtype : values()) {
      if (dtype.name().equals(name)) {
        return dtype;
      }
    }
    return null;
  }

  /** Bytes per element. */
  public int bytes() {
    return bytes;
  }

  /**
   * Reads elements as floats. F64 is rounded to the nearest float, the others are exact.
   *
   * @param from holds elements of this type
   * @param byteOffset where in {@code from} the first one starts; any alignment
   */
  public void decode(MemorySegment from, long byteOffset, float[] to, int offset, int count) {
    switch (this) {
      case F64 -> {
        for (int i = 0; i < count; i++) {
          to[offset + i] = (float) from.get(DOUBLE, byteOffset + 8L * i);
        }
      }
      case F32 -> MemorySegment.copy(from, FLOAT, byteOffset, to, offset, count);
      case F16 -> {
        for (int i = 0; i < count; i++) {
          to[offset + i] = Float.float16ToFloat(from.get(SHORT, byteOffset + 2L * i));
        }
      }
      case BF16 -> {
        for (int i = 0; i < count; i++) {
          to[offset + i] = bf16ToFloat(from.get(SHORT, byteOffset + 2L * i));
        }
      }
    }
  }

  /**
   * Writes floats as elements of this type, rounded to the nearest, ties to even. What F16 can't
   * hold (beyond 65504) becomes an infinity.
   *
   * @param byteOffset where in {@code to} the first one goes; any alignment
   */
  public void encode(float[] from, int offset, int count, MemorySegment to, long byteOffset) {
    switch (this) {
      case F64 -> {
        for (int i = 0; i < count; i++) {
          to.set(DOUBLE, byteOffset + 8L * i, from[offset + i]);
        }
      }
      case F32 -> MemorySegment.copy(from, offset, to, FLOAT, byteOffset, count);
      case F16 -> {
        for (int i = 0; i < count; i++) {
          to.set(SHORT, byteOffset + 2L * i, Float.floatToFloat16(from[offset + i]));
        }
      }
      case BF16 -> {
        for (int i = 0; i < count; i++) {
          to.set(SHORT, byteOffset + 2L * i, floatToBf16(from[offset + i]));
        }
      }
    }
  }

  /** The number that 16 bits of bfloat16 stand for: the upper half of a float. */
  public static float bf16ToFloat(short bits) {
    return Float.intBitsToFloat(bits << 16);
  }

  /** The nearest bfloat16, of two the one with an even last bit; a NaN stays one. */
  public static short floatToBf16(float value) {
    int bits = Float.floatToRawIntBits(value);
    if (Float.isNaN(value)) {
      return (short) ((bits >>> 16) | 0x40); // rounding could carry a NaN into an infinity
    }
    int tiesToEven = 0x7FFF + ((bits >>> 16) & 1);
    return (short) ((bits + tiesToEven) >>> 16);
  }
}
