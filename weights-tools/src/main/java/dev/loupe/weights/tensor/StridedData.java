package dev.loupe.weights.tensor;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.util.List;
import java.util.Objects;
import java.util.stream.Stream;

/**
 * Elements that lie in a storage by strides: element [i, j] at offset + i strides[0] + j
 * strides[1]. So a transposition is stored, a slice, or a view of a storage that tensors share. The
 * bytes of each element may be in either order.
 *
 * <p>Source: the strided layout of PyTorch's tensors.
 */
public final class StridedData implements TensorData {
  private static final ValueLayout.OfShort SHORT =
      ValueLayout.JAVA_SHORT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final ValueLayout.OfInt INT =
      ValueLayout.JAVA_INT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final ValueLayout.OfLong LONG =
      ValueLayout.JAVA_LONG_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

  /** Rows that are copied side by side: where they are columns in the file, whole cache lines. */
  private static final int ROWS = 16;

  private final DType dtype;
  private final MemorySegment stored; // from the first element to the last
  private final boolean bigEndian;
  private final List<Long> shape;
  private final List<Long> strides;
  private final long elements;

  private StridedData(
      DType dtype,
      MemorySegment stored,
      boolean bigEndian,
      List<Long> shape,
      List<Long> strides,
      long elements) {
    this.dtype = dtype;
    this.stored = stored;
    this.bigEndian = bigEndian;
    this.shape = shape;
    this.strides = strides;
    this.elements = elements;
  }

  /**
   * A view of {@code storage}; a {@link DenseData} if it is dense.
   *
   * @param order of the bytes of an element
   * @param offset of the first element, in elements
   * @param shape extents, outermost first; none for a scalar
   * @param strides as many, in elements, none negative
   * @throws IllegalArgumentException if the view leaves the storage, or has more elements than it:
   *     a stride of 0 must not make gigabytes of one number
   */
  public static TensorData of(
      DType dtype,
      ByteOrder order,
      MemorySegment storage,
      long offset,
      List<Long> shape,
      List<Long> strides) {
    if (strides.size() != shape.size()
        || Stream.concat(shape.stream(), strides.stream()).anyMatch(number -> number < 0)) {
      throw new IllegalArgumentException("strides %s for the shape %s".formatted(strides, shape));
    }
    long room = storage.byteSize() / dtype.bytes();
    long elements = 1;
    long last = offset;
    boolean dense = true;
    try {
      for (int d = shape.size() - 1; d >= 0; d--) {
        long extent = shape.get(d);
        dense &= extent == 1 || strides.get(d) == elements;
        last = Math.addExact(last, Math.multiplyExact(Math.max(0, extent - 1), strides.get(d)));
        elements = Math.multiplyExact(elements, extent);
      }
    } catch (ArithmeticException e) {
      throw new IllegalArgumentException(
          "the shape %s with strides %s is more than any file holds".formatted(shape, strides), e);
    }
    if (elements == 0) {
      return new DenseData(dtype, storage.asSlice(0, 0));
    }
    if (offset < 0 || last >= room || elements > room) {
      throw new IllegalArgumentException(
          "the shape %s with strides %s from element %d on leaves a storage of %d elements"
              .formatted(shape, strides, offset, room));
    }
    MemorySegment span =
        storage.asSlice(offset * dtype.bytes(), (last - offset + 1) * dtype.bytes());
    return dense && order == ByteOrder.LITTLE_ENDIAN
        ? new DenseData(dtype, span)
        : new StridedData(
            dtype,
            span,
            order == ByteOrder.BIG_ENDIAN,
            List.copyOf(shape),
            List.copyOf(strides),
            elements);
  }

  /**
   * The matrix [columns, rows] whose transposition [rows, columns] is stored densely.
   *
   * @throws IllegalArgumentException if {@code storage} is smaller than that
   */
  public static TensorData transposed(DType dtype, MemorySegment storage, long rows, long columns) {
    return of(
        dtype, ByteOrder.LITTLE_ENDIAN, storage, 0, List.of(columns, rows), List.of(1L, columns));
  }

  @Override
  public DType dtype() {
    return dtype;
  }

  @Override
  public String storedAs() {
    return dtype.name();
  }

  @Override
  public long elements() {
    return elements;
  }

  @Override
  public MemorySegment stored() {
    return stored;
  }

  @Override
  public MemorySegment dense(Arena arena) {
    int size = dtype.bytes();
    MemorySegment to = arena.allocate(Math.multiplyExact(elements, size));
    long width = shape.isEmpty() ? 1 : shape.getLast();
    long stride = shape.isEmpty() ? 1 : strides.getLast();
    long rows = elements / width;
    long[] starts = new long[ROWS];
    for (long first = 0; first < rows; first += ROWS) {
      int n = (int) Math.min(ROWS, rows - first);
      for (int r = 0; r < n; r++) {
        starts[r] = position((first + r) * width);
      }
      for (long j = 0; j < width; j++) {
        for (int r = 0; r < n; r++) {
          copy((starts[r] + j * stride) * size, to, ((first + r) * width + j) * size);
        }
      }
    }
    return to;
  }

  @Override
  public void read(long first, float[] to, int offset, int count) {
    Objects.checkFromIndexSize(first, count, elements);
    MemorySegment one = MemorySegment.ofArray(new byte[dtype.bytes()]);
    for (int i = 0; i < count; i++) {
      copy(position(first + i) * dtype.bytes(), one, 0);
      dtype.decode(one, 0, to, offset + i, 1);
    }
  }

  /** Where the element of this number lies, from the first on, in elements. */
  private long position(long index) {
    long position = 0;
    for (int d = shape.size() - 1; d >= 0; d--) {
      position += index % shape.get(d) * strides.get(d);
      index /= shape.get(d);
    }
    return position;
  }

  private void copy(long from, MemorySegment to, long at) {
    switch (dtype.bytes()) {
      case 2 -> {
        short bits = stored.get(SHORT, from);
        to.set(SHORT, at, bigEndian ? Short.reverseBytes(bits) : bits);
      }
      case 4 -> {
        int bits = stored.get(INT, from);
        to.set(INT, at, bigEndian ? Integer.reverseBytes(bits) : bits);
      }
      default -> {
        long bits = stored.get(LONG, from);
        to.set(LONG, at, bigEndian ? Long.reverseBytes(bits) : bits);
      }
    }
  }
}
