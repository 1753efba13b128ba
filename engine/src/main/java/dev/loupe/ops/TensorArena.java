package dev.loupe.ops;

import dev.loupe.weights.tensor.StoredTensor;
import org.jspecify.annotations.Nullable;

/**
 * The memory of one model or one session in a backend. Where the backend has no room left, the host
 * says so by an OutOfMemoryError and a GPU by a {@link dev.loupe.cuda.driver.GpuMemoryException}.
 * Closing it frees every tensor that it gave out; a tensor used afterwards is an
 * IllegalStateException, not a crash.
 */
public interface TensorArena extends AutoCloseable {
  /** An f32 matrix; what it holds before it is written may be anything, NaN too. */
  Tensor allocate(int rows, int cols);

  /**
   * Likewise a matrix for activations or the KV cache, in the element type that the backend
   * multiplies by its weights: f32 on the CPU.
   */
  Tensor activations(int rows, int cols);

  /** The weight [in, out] of a {@link Linear}. */
  Weight weight(StoredTensor stored);

  /**
   * A table of a checkpoint, one row for each token or position, in the backend's memory; on the
   * CPU it is the mapped file itself. A vector [n] comes as [1, n].
   */
  Tensor table(StoredTensor stored);

  /**
   * The head that {@link Pass#logits} multiplies by.
   *
   * @param stored [V, C]
   * @param tied the table of the same values, where the head is tied to the embedding; else null
   */
  Weight head(StoredTensor stored, @Nullable Tensor tied);

  /** A vector of a checkpoint as f32 [1, n]: biases and layer norms, which are small. */
  Tensor vector(StoredTensor stored);

  /**
   * After the last weight: waits until all are where they belong and gives back what they passed
   * through.
   *
   * @throws dev.loupe.cuda.driver.GpuException if the GPU fails
   */
  default void loaded() {}

  /**
   * Tells that the session ended as it should: closing this may then keep its memory for the next
   * one. Where it failed, what it left is not trusted.
   */
  default void keep() {}

  @Override
  void close();
}
