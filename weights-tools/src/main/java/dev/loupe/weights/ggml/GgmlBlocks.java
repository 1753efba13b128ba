package dev.loupe.weights.ggml;

import dev.loupe.weights.format.CheckpointReader;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.StrictJson;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.DenseData;
import dev.loupe.weights.tensor.StridedData;
import dev.loupe.weights.tensor.TensorData;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.util.List;
import java.util.Objects;

/**
 * Elements that ggml quantised, given as f32. A row consists of blocks; in each, d and m are
 * binary16, and the elements of the first half lie in the low halves of the bytes, those of the
 * second in the high ones:
 *
 * <pre>
 * Q4_0    d, 16 bytes                        d (q - 8)
 * Q4_1    d, m, 16 bytes                     d q + m
 * Q5_0    d, fifth bits (u32), 16 bytes      d (q - 16)
 * Q5_1    d, m, fifth bits (u32), 16 bytes   d q + m
 * Q8_0    d, 32 signed bytes                 d q
 * IQ4_NL  d, 16 bytes                        d VALUES[q]
 * </pre>
 *
 * <p>Those of 256 elements ("K") have a scale s, and some a minimum, for each group of 16 or 32: d
 * s q - m min, or d s (q - middle) without a minimum. IQ4_XS is d s VALUES[q], IQ3_S d s and a
 * magnitude of {@link Iq3Grid} with its sign.
 *
 * <p>Source: ggml's src/ggml-common.h and the {@code dequantize_row} functions of
 * src/ggml-quants.c, whose order of operations this follows, to the same bits.
 */
public final class GgmlBlocks implements TensorData {
  private static final ValueLayout.OfFloat FLOAT =
      ValueLayout.JAVA_FLOAT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final ValueLayout.OfShort SHORT =
      ValueLayout.JAVA_SHORT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final ValueLayout.OfInt INT =
      ValueLayout.JAVA_INT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final byte[] VALUES = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
  };

  private final GgmlType type;
  private final MemorySegment stored;
  private final long rows;
  private final long columns;
  private final boolean transposed;

  private GgmlBlocks(
      GgmlType type, MemorySegment stored, long rows, long columns, boolean transposed) {
    this.type = type;
    this.stored = stored;
    this.rows = rows;
    this.columns = columns;
    this.transposed = transposed;
  }

  /**
   * A tensor of one of ggml's files. Matrices of blocks are stored [out, in], the tables of
   * embeddings and the head as everywhere.
   *
   * @param name Hugging Face's
   * @param number of the type
   * @param shape as it is stored, outermost first
   * @param data where {@code offset} counts from
   * @throws CheckpointException if the file doesn't hold all of it, or a row is no whole blocks
   */
  static CheckpointReader.Entry entry(
      String name, int number, List<Long> shape, MemorySegment data, long offset, Path file)
      throws CheckpointException {
    String what = "%s: %s".formatted(file, StrictJson.shown(name));
    boolean transposed = shape.size() == 2 && name.startsWith("h.");
    List<Long> given = transposed ? shape.reversed() : shape;
    GgmlType type = GgmlType.numbered(number);
    if (type == null) {
      return new CheckpointReader.Entry(name, GgmlType.nameOf(number), given, null, file);
    }
    long columns = shape.isEmpty() ? 1 : shape.getLast();
    if (columns % type.blockElements() != 0) {
      throw new CheckpointException(
          "%s is %s in rows of %d, no whole blocks of %d"
              .formatted(what, type.name(), columns, type.blockElements()));
    }
    long bytes;
    try {
      bytes = type.bytes(shape.stream().reduce(1L, Math::multiplyExact));
    } catch (ArithmeticException e) {
      throw new CheckpointException(
          "%s has the shape %s, more than any file holds".formatted(what, shape), e);
    }
    if (offset < 0 || offset > data.byteSize() || bytes > data.byteSize() - offset) {
      throw new CheckpointException(
          "%s is cut short or damaged: it takes %d bytes from byte %s of the data on, which has %d"
              .formatted(what, bytes, Long.toUnsignedString(offset), data.byteSize()));
    }
    TensorData elements = of(type, data.asSlice(offset, bytes), columns, transposed);
    return new CheckpointReader.Entry(name, type.name(), given, elements, file);
  }

  private static TensorData of(
      GgmlType type, MemorySegment stored, long columns, boolean transposed) {
    DType dtype = DType.named(type.name());
    long elements = stored.byteSize() / type.blockBytes() * type.blockElements();
    long rows = columns == 0 ? 0 : elements / columns;
    if (dtype == null) {
      return new GgmlBlocks(type, stored, rows, columns, transposed);
    }
    return transposed
        ? StridedData.transposed(dtype, stored, rows, columns)
        : new DenseData(dtype, stored);
  }

  @Override
  public DType dtype() {
    return DType.F32;
  }

  @Override
  public String storedAs() {
    return type.name();
  }

  @Override
  public long elements() {
    return rows * columns;
  }

  @Override
  public MemorySegment stored() {
    return stored;
  }

  @Override
  public MemorySegment dense(Arena arena) {
    if (!transposed) {
      return decoded(arena);
    }
    try (Arena one = Arena.ofConfined()) {
      return StridedData.transposed(DType.F32, decoded(one), rows, columns).dense(arena);
    }
  }

  private MemorySegment decoded(Arena arena) {
    MemorySegment to = arena.allocate(Math.multiplyExact(elements(), Float.BYTES));
    int n = type.blockElements();
    float[] block = new float[n];
    for (long b = 0; b < elements() / n; b++) {
      for (int i = 0; i < n; i++) {
        block[i] = element(b * type.blockBytes(), i);
      }
      MemorySegment.copy(block, 0, to, FLOAT, b * n * Float.BYTES, n);
    }
    return to;
  }

  @Override
  public void read(long first, float[] to, int offset, int count) {
    Objects.checkFromIndexSize(first, count, elements());
    int n = type.blockElements();
    for (int i = 0; i < count; i++) {
      long at = first + i;
      if (transposed) {
        at = at % rows * columns + at / rows;
      }
      to[offset + i] = element(at / n * type.blockBytes(), (int) (at % n));
    }
  }

  /** Element {@code i} of the block that begins at this byte. */
  private float element(long block, int i) {
    return switch (type) {
      case Q4_0 -> half(block) * (nibble(block + 2, i) - 8);
      case Q4_1 -> half(block) * nibble(block + 4, i) + half(block + 2);
      case Q5_0 -> half(block) * ((nibble(block + 6, i) | fifthBit(block + 2, i)) - 16);
      case Q5_1 -> half(block) * (nibble(block + 8, i) | fifthBit(block + 4, i)) + half(block + 2);
      case Q8_0 -> half(block) * signed(block + 2 + i);
      case IQ4_NL -> half(block) * VALUES[nibble(block + 2, i)];
      case Q2_K -> q2(block, i);
      case Q3_K -> q3(block, i);
      case Q4_K -> q4(block, i);
      case Q5_K -> q5(block, i);
      case Q6_K -> q6(block, i);
      case IQ3_S -> iq3(block, i);
      case IQ4_XS -> iq4(block, i);
      case F64, F32, F16, BF16 -> throw new IllegalStateException(type + " has no blocks");
    };
  }

  private float half(long at) {
    return Float.float16ToFloat(stored.get(SHORT, at));
  }

  private int signed(long at) {
    return stored.get(ValueLayout.JAVA_BYTE, at);
  }

  /** As many bits of byte {@code i} as {@code mask} has, from bit {@code shift} on. */
  private int bits(long bytes, int i, int shift, int mask) {
    return (stored.get(ValueLayout.JAVA_BYTE, bytes + i) >> shift) & mask;
  }

  /** Of 32 elements in 16 bytes. */
  private int nibble(long bytes, int i) {
    return bits(bytes, i % 16, i / 16 * 4, 15);
  }

  private int fifthBit(long word, int i) {
    return ((stored.get(INT, word) >>> i) & 1) << 4;
  }

  /** Four bits an element: those of 64 lie in 32 bytes. */
  private int fourBits(long bytes, int i) {
    return bits(bytes, i / 64 * 32 + i % 32, i % 64 / 32 * 4, 15);
  }

  /** Two bits an element: those of 128 lie in 32 bytes. */
  private int twoBits(long bytes, int i) {
    return bits(bytes, i / 128 * 32 + i % 32, i % 128 / 32 * 2, 3);
  }

  /** One bit an element, of 256 in 32 bytes. */
  private int oneBit(long bytes, int i) {
    return bits(bytes, i % 32, i / 32, 1);
  }

  /** 16 bytes of scale (low half) and minimum (high), 64 of elements, d, m. */
  private float q2(long block, int i) {
    float d = half(block + 80) * bits(block, i / 16, 0, 15);
    return d * twoBits(block + 16, i) - half(block + 82) * bits(block, i / 16, 4, 15);
  }

  /** 32 bytes of third bits, 64 of the two others, 12 of 6-bit scales, d. */
  private float q3(long block, int i) {
    int group = i / 16;
    int low = bits(block + 96, group % 8, group / 8 * 4, 15);
    int high = bits(block + 104, group % 4, group / 4 * 2, 3);
    int q = twoBits(block + 32, i) + 4 * oneBit(block, i) - 4;
    return half(block + 108) * (low + 16 * high - 32) * q;
  }

  /** d, m, 12 bytes of 6-bit scales and minima, 128 of elements. */
  private float q4(long block, int i) {
    return half(block) * scale(block + 4, i / 32) * fourBits(block + 16, i)
        - half(block + 2) * min(block + 4, i / 32);
  }

  /** d, m, 12 bytes of 6-bit scales and minima, 32 of fifth bits, 128 of the four others. */
  private float q5(long block, int i) {
    int q = fourBits(block + 48, i) + 16 * oneBit(block + 16, i);
    return half(block) * scale(block + 4, i / 32) * q - half(block + 2) * min(block + 4, i / 32);
  }

  /** The first four groups' are whole; two bits of the others' lie in what those leave free. */
  private int scale(long scales, int group) {
    return group < 4
        ? bits(scales, group, 0, 63)
        : bits(scales, group + 4, 0, 15) + 16 * bits(scales, group - 4, 6, 3);
  }

  private int min(long scales, int group) {
    return group < 4
        ? bits(scales, group + 4, 0, 63)
        : bits(scales, group + 4, 4, 15) + 16 * bits(scales, group, 6, 3);
  }

  /** 128 bytes of the low four bits, 64 of the two others, 16 signed scales, d. */
  private float q6(long block, int i) {
    int low = bits(block, i / 128 * 64 + i % 64, i % 128 / 64 * 4, 15);
    int q = low + 16 * twoBits(block + 128, i) - 32;
    return half(block + 208) * signed(block + 192 + i / 16) * q;
  }

  /** d, 64 bytes of entries in the grid, 8 of their ninth bits, 32 of signs, 4 of 4-bit scales. */
  private float iq3(long block, int i) {
    int entry = bits(block + 2, i / 4, 0, 255) | (bits(block + 66, i / 32, i / 4 % 8, 1) << 8);
    float scaled = half(block) * (1 + 2 * bits(block + 106, i / 64, i / 32 % 2 * 4, 15));
    float magnitude = scaled * Iq3Grid.magnitude(entry, i % 4);
    return bits(block + 74, i / 8, i % 8, 1) == 0 ? magnitude : -magnitude;
  }

  /** d, the upper two bits of 6-bit scales (u16), 4 bytes of the four others, 128 of elements. */
  private float iq4(long block, int i) {
    int group = i / 32;
    int low = bits(block + 4, group / 2, group % 2 * 4, 15);
    int high = bits(block + 2, group / 4, group % 4 * 2, 3);
    int q = nibble(block + 8 + 16L * group, i % 32);
    return half(block) * (low + 16 * high - 32) * VALUES[q];
  }
}
