package dev.loupe.weights.tensor;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;
import java.util.List;

/** One tensor of a checkpoint, in Hugging Face's layout whatever the file's is. */
public final class StoredTensor {
  private final String name;
  private final List<Long> shape;
  private final TensorData data;

  /**
   * @param shape extents, outermost first; of matrices [in, out]
   * @param data row-major
   * @throws IllegalArgumentException if the data has more or fewer elements than the shape says
   */
  public StoredTensor(String name, List<Long> shape, TensorData data) {
    this.name = name;
    this.shape = List.copyOf(shape);
    this.data = data;
    if (data.elements() != elements(shape)) {
      throw new IllegalArgumentException(
          "%s: %s takes %d elements, given %d"
              .formatted(name, shape, elements(shape), data.elements()));
    }
  }

  /**
   * A tensor that lies in memory.
   *
   * @param data row-major, little-endian, exactly product(shape) * dtype.bytes() bytes
   */
  public StoredTensor(String name, DType dtype, List<Long> shape, MemorySegment data) {
    this(name, shape, new DenseData(dtype, data));
  }

  /** Hugging Face's name without {@code transformer.}, e.g. {@code h.0.attn.c_attn.weight}. */
  public String name() {
    return name;
  }

  /** Type of the elements as they are given; F32 for those that are stored quantised. */
  public DType dtype() {
    return data.dtype();
  }

  /** The type in the file, for people: {@code F16}, {@code Q4_0}. */
  public String storedAs() {
    return data.storedAs();
  }

  /** Extents, outermost first; matrices are [in, out]. */
  public List<Long> shape() {
    return shape;
  }

  /** Number of elements. */
  public long elements() {
    return data.elements();
  }

  /** The part of the mapped file that the elements are made from, as it is there. */
  public MemorySegment stored() {
    return data.stored();
  }

  /**
   * All elements in {@link #dtype}, row-major, little-endian, with no alignment promised. Where the
   * file has them so this is the mapped file; otherwise it is made in {@code arena}, every time.
   */
  public MemorySegment data(Arena arena) {
    return data.dense(arena);
  }

  /**
   * Copies elements {@code first} to {@code first + count - 1} in row-major order as floats. Slow
   * where the file has them in another order or quantised: for all of them, take {@link #data}.
   *
   * @throws IndexOutOfBoundsException if the tensor or {@code to} ends before that
   */
  public void read(long first, float[] to, int offset, int count) {
    data.read(first, to, offset, count);
  }

  /** Whether both have the same bytes, as {@link #data} gives them. */
  public boolean isSameAs(StoredTensor other) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment a = data(arena);
      MemorySegment b = other.data(arena);
      // through the heap: a file that is cut meanwhile is an error there, and a crash in native
      // code
      byte[] ofA = new byte[1 << 16];
      byte[] ofB = new byte[1 << 16];
      for (long at = 0; at < a.byteSize() && a.byteSize() == b.byteSize(); at += ofA.length) {
        int n = (int) Math.min(ofA.length, a.byteSize() - at);
        MemorySegment.copy(a, ValueLayout.JAVA_BYTE, at, ofA, 0, n);
        MemorySegment.copy(b, ValueLayout.JAVA_BYTE, at, ofB, 0, n);
        if (!Arrays.equals(ofA, 0, n, ofB, 0, n)) {
          return false;
        }
      }
      return a.byteSize() == b.byteSize();
    }
  }

  private static long elements(List<Long> shape) {
    return shape.stream().reduce(1L, Math::multiplyExact);
  }
}
