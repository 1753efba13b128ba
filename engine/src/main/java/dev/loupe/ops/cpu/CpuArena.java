package dev.loupe.ops.cpu;

import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.ops.Weight;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Off-heap memory; tables stay where the checkpoint mapped them, if they can, weights are packed
 * anew.
 */
final class CpuArena implements TensorArena {

  private final CpuOps ops;
  private final Arena arena = Arena.ofShared();

  CpuArena(CpuOps ops) {
    this.ops = ops;
  }

  @Override
  public Tensor allocate(int rows, int cols) {
    long bytes = Math.multiplyExact(4L * rows, cols);
    return new Tensor(DType.F32, rows, cols, Pages.allocate(arena, bytes));
  }

  @Override
  public Tensor activations(int rows, int cols) {
    return allocate(rows, cols);
  }

  @Override
  public Weight weight(StoredTensor stored) {
    return ops.pack(stored, false, arena);
  }

  @Override
  public Tensor table(StoredTensor stored) {
    List<Long> shape = stored.shape();
    int rows = shape.size() == 1 ? 1 : Math.toIntExact(shape.get(0));
    int cols = Math.toIntExact(shape.getLast());
    if (stored.dtype() == DType.F64) {
      return widened(stored, rows, cols);
    }
    return new Tensor(stored.dtype(), rows, cols, stored.data(arena));
  }

  @Override
  public Weight head(StoredTensor stored, @Nullable Tensor tied) {
    return ops.pack(stored, true, arena);
  }

  @Override
  public Tensor vector(StoredTensor stored) {
    return widened(stored, 1, Math.toIntExact(stored.elements()));
  }

  private Tensor widened(StoredTensor stored, int rows, int cols) {
    Tensor wide = allocate(rows, cols);
    float[] row = new float[cols];
    for (int r = 0; r < rows; r++) {
      stored.read((long) r * cols, row, 0, cols);
      MemorySegment.copy(row, 0, wide.data(), ScalarLoops.F32, wide.offset(r, 0), cols);
    }
    return wide;
  }

  @Override
  public void close() {
    arena.close();
  }
}
