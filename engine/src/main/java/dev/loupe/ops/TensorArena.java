package dev.loupe.ops;

import dev.loupe.weights.StoredTensor;

/**
 * The memory of one model or one session in a backend. Closing it frees every tensor that it gave
 * out; a tensor used afterwards is an IllegalStateException, not a crash.
 */
public interface TensorArena extends AutoCloseable {
  /**
   * An f32 matrix of zeros.
   *
   * @throws OutOfMemoryError if the backend has no room for it
   */
  Tensor allocate(int rows, int cols);

  /**
   * A matrix of a checkpoint in the backend's memory, in its stored element type; on the CPU it is
   * the mapped file itself. A vector [n] comes as [1, n].
   */
  Tensor matrix(StoredTensor stored);

  /** A vector of a checkpoint as f32 [1, n]: biases and layer norms, which are small. */
  Tensor vector(StoredTensor stored);

  @Override
  void close();
}
