package dev.loupe.weights.tensor;

import dev.loupe.weights.ggml.GgmlBlocks;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * The elements of a tensor, in Hugging Face's layout whatever the file's is: row-major, matrices
 * [in, out]. {@link DenseData} has them so in the file, {@link StridedData} in another order of
 * elements or bytes, {@link GgmlBlocks} quantised.
 *
 * <p>Whoever makes one has checked that the file holds all of it, so that reading can't fail.
 */
public interface TensorData {
  /** The type in which the elements are given, which need not be that of the file. */
  DType dtype();

  /** The type in the file, for people: {@code F16}, {@code Q4_0}. */
  String storedAs();

  /** Number of elements. */
  long elements();

  /** The part of the file that they are made from. */
  MemorySegment stored();

  /**
   * All elements, dense and little-endian, with no alignment promised: the file itself where it has
   * them so, else memory of {@code arena}.
   */
  MemorySegment dense(Arena arena);

  /**
   * Copies elements {@code first} to {@code first + count - 1} as floats.
   *
   * @throws IndexOutOfBoundsException if there are fewer, or {@code to} ends before
   */
  void read(long first, float[] to, int offset, int count);
}
