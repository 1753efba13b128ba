package dev.loupe.weights;

import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.TensorData;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.util.Objects;

/**
 * A matrix and a change of low rank: element [i, j] is that of the matrix and scale times the sum
 * over k of left[i, k] right[k, j], given as f32. It is computed whenever it is read.
 *
 * <p>Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", arXiv 2106.09685.
 */
final class LoraData implements TensorData {
  private static final ValueLayout.OfFloat FLOAT =
      ValueLayout.JAVA_FLOAT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

  private final TensorData matrix;
  private final float[] left; // [rows, rank]
  private final float[] right; // [rank, columns]
  private final int rank;
  private final int columns;
  private final double scale;

  LoraData(TensorData matrix, float[] left, float[] right, int rank, int columns, double scale) {
    this.matrix = matrix;
    this.left = left;
    this.right = right;
    this.rank = rank;
    this.columns = columns;
    this.scale = scale;
  }

  @Override
  public DType dtype() {
    return DType.F32;
  }

  @Override
  public String storedAs() {
    return matrix.storedAs();
  }

  @Override
  public long elements() {
    return matrix.elements();
  }

  @Override
  public MemorySegment stored() {
    return matrix.stored();
  }

  @Override
  public MemorySegment dense(Arena arena) {
    MemorySegment to = arena.allocate(Math.multiplyExact(elements(), Float.BYTES));
    float[] row = new float[columns];
    try (Arena one = Arena.ofConfined()) {
      MemorySegment dense = matrix.dense(one);
      DType dtype = matrix.dtype();
      for (long i = 0; i < elements() / columns; i++) {
        dtype.decode(dense, i * columns * dtype.bytes(), row, 0, columns);
        for (int j = 0; j < columns; j++) {
          row[j] = changed(row[j], i, j);
        }
        MemorySegment.copy(row, 0, to, FLOAT, i * columns * Float.BYTES, columns);
      }
    }
    return to;
  }

  @Override
  public void read(long first, float[] to, int offset, int count) {
    Objects.checkFromIndexSize(first, count, elements());
    matrix.read(first, to, offset, count);
    for (int n = 0; n < count; n++) {
      long i = (first + n) / columns;
      to[offset + n] = changed(to[offset + n], i, (int) ((first + n) % columns));
    }
  }

  private float changed(float weight, long i, int j) {
    double sum = 0;
    int of = (int) i * rank;
    for (int k = 0; k < rank; k++) {
      sum += (double) left[of + k] * right[k * columns + j];
    }
    return (float) (weight + scale * sum);
  }
}
