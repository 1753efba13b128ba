package dev.loupe.ops;

import dev.loupe.weights.tensor.DType;
import java.lang.foreign.MemorySegment;

/**
 * A matrix in a backend's memory, row-major and dense. A vector is a matrix of one row.
 *
 * @param dtype element type; activations are F32, weights may be narrower
 * @param rows number of rows
 * @param cols elements per row
 * @param data where it lies: readable memory on the CPU; on a GPU a segment of size 0 whose address
 *     is the device pointer, which Java can carry but not touch
 */
public record Tensor(DType dtype, int rows, int cols, MemorySegment data) {
  public Tensor {
    if (rows < 0 || cols < 0) {
      throw new IllegalArgumentException("a tensor of %d x %d".formatted(rows, cols));
    }
  }

  /** Bytes that the elements take. */
  public long byteSize() {
    return (long) rows * cols * dtype.bytes();
  }

  /** Offset in bytes of element (row, col) from the start of {@link #data}. */
  public long offset(int row, int col) {
    return ((long) row * cols + col) * dtype.bytes();
  }

  /** The rows {@code first .. first + count - 1}, sharing memory with this tensor. */
  public Tensor rows(int first, int count) {
    if (first < 0 || count < 0 || first > rows - count) {
      throw new IndexOutOfBoundsException(
          "rows %d..%d of a tensor with %d".formatted(first, first + count - 1, rows));
    }
    if (count == rows) {
      return this;
    }
    long bytes = (long) count * cols * dtype.bytes();
    if (data.byteSize() == 0) {
      return new Tensor(
          dtype, count, cols, MemorySegment.ofAddress(data.address() + offset(first, 0)));
    }
    return new Tensor(dtype, count, cols, data.asSlice(offset(first, 0), bytes));
  }
}
