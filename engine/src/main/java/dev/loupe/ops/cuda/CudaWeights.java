package dev.loupe.ops.cuda;

import dev.loupe.kernels.DeviceBuffer;
import dev.loupe.kernels.Int8Weights;
import dev.loupe.weights.StoredTensor;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/**
 * Brings the matrices of a checkpoint to the device as the kernels want them: [out, in], in the
 * element that was asked for, a piece of a few megabytes at a time.
 */
final class CudaWeights {
  private static final int PIECE = 1 << 20; // elements

  private CudaWeights() {}

  /** Scales of a row of int8 weights. */
  static int groups(int in) {
    return Math.ceilDiv(in, Int8Weights.GROUP);
  }

  /**
   * Uploads a matrix.
   *
   * @param transposed whether the checkpoint has [in, out], as for a Linear; a table is [out, in]
   * @param to [out, in]
   * @param scales of I8 weights
   */
  static void upload(
      StoredTensor stored, boolean transposed, DeviceBuffer to, @Nullable DeviceBuffer scales) {
    int first = Math.toIntExact(stored.shape().getFirst());
    int last = Math.toIntExact(stored.shape().getLast());
    int in = transposed ? first : last;
    int outputs = transposed ? last : first;
    int rows = Math.clamp(PIECE / in, 1, outputs);
    float[] piece = new float[rows * in];
    float[] line = new float[rows];
    for (int row = 0; row < outputs; row += rows) {
      int n = Math.min(rows, outputs - row);
      if (transposed) {
        for (int k = 0; k < in; k++) {
          stored.read((long) k * outputs + row, line, 0, n);
          for (int i = 0; i < n; i++) {
            piece[i * in + k] = line[i];
          }
        }
      } else {
        stored.read((long) row * in, piece, 0, n * in);
      }
      float[] exact = n == rows ? piece : Arrays.copyOf(piece, n * in);
      DeviceBuffer slice = to.slice((long) row * in, (long) n * in);
      if (scales == null) {
        slice.upload(exact);
      } else {
        Int8Weights q = Int8Weights.quantise(exact, in, n);
        slice.upload(MemorySegment.ofArray(q.values()));
        int groups = groups(in);
        scales.slice((long) row * groups, (long) n * groups).upload(q.scales());
      }
    }
  }
}
