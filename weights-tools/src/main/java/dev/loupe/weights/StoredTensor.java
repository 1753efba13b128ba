package dev.loupe.weights;

import java.lang.foreign.MemorySegment;
import java.util.List;

/**
 * One tensor of a checkpoint, in place: {@code data} is a view of the mapped file, row-major,
 * little-endian, with no alignment promised.
 *
 * @param name Hugging Face's name without the {@code transformer.} prefix, e.g. {@code
 *     h.0.attn.c_attn.weight}
 * @param dtype element type
 * @param shape extents, outermost first
 * @param data exactly product(shape) * dtype.bytes() bytes
 */
public record StoredTensor(String name, DType dtype, List<Long> shape, MemorySegment data) {
  public StoredTensor {
    shape = List.copyOf(shape);
    long bytes = elements(shape) * dtype.bytes();
    if (data.byteSize() != bytes) {
      throw new IllegalArgumentException(
          "%s: %s %s takes %d bytes, given %d"
              .formatted(name, dtype, shape, bytes, data.byteSize()));
    }
  }

  /** Number of elements. */
  public long elements() {
    return elements(shape);
  }

  /**
   * Copies elements {@code first} to {@code first + count - 1} in row-major order as floats.
   *
   * @throws IndexOutOfBoundsException if the tensor or {@code to} ends before that
   */
  public void read(long first, float[] to, int offset, int count) {
    dtype.decode(data, first * dtype.bytes(), to, offset, count);
  }

  private static long elements(List<Long> shape) {
    long n = 1;
    for (long extent : shape) {
      n = Math.multiplyExact(n, extent);
    }
    return n;
  }
}
