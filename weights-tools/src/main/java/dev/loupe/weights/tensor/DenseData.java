package dev.loupe.weights.tensor;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * Elements that are stored as they are wanted: one after the other, little-endian.
 *
 * @param stored whole elements
 */
public record DenseData(DType dtype, MemorySegment stored) implements TensorData {
  public DenseData {
    if (stored.byteSize() % dtype.bytes() != 0) {
      throw new IllegalArgumentException(
          "%d bytes are no whole elements of %s".formatted(stored.byteSize(), dtype));
    }
  }

  /** As many zeros, for a bias that a model does without. They live as long as {@code arena}. */
  public static DenseData zeros(long elements, Arena arena) {
    return new DenseData(
        DType.F32, arena.allocate(Math.multiplyExact(elements, DType.F32.bytes())).asReadOnly());
  }

  @Override
  public String storedAs() {
    return dtype.name();
  }

  @Override
  public long elements() {
    return stored.byteSize() / dtype.bytes();
  }

  @Override
  public MemorySegment dense(Arena arena) {
    return stored;
  }

  @Override
  public void read(long first, float[] to, int offset, int count) {
    dtype.decode(stored, first * dtype.bytes(), to, offset, count);
  }
}
