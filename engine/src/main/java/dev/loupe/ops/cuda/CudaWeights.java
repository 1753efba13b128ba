package dev.loupe.ops.cuda;

import dev.loupe.kernels.DeviceBuffer;
import dev.loupe.kernels.Element;
import dev.loupe.kernels.Gpu;
import dev.loupe.kernels.Int8Weights;
import dev.loupe.kernels.LinearMap;
import dev.loupe.kernels.PointwiseKernels;
import dev.loupe.kernels.WeightKernels;
import dev.loupe.weights.DType;
import dev.loupe.weights.Gpt2Config;
import dev.loupe.weights.StoredTensor;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * Brings the matrices of a checkpoint to the device as the kernels want them, [out, in] in the
 * element that was asked for: a few megabytes at a time go there as the checkpoint gives them and
 * are transposed and converted on the device, so no second copy is ever whole.
 */
final class CudaWeights implements AutoCloseable {
  private static final int CHUNK = 1 << 22; // elements

  private final Gpu gpu;
  private final WeightKernels kernels;
  private final PointwiseKernels pointwise;
  private DeviceBuffer chunk;

  /** Most bytes that are on their way to the device at a time. */
  static long chunkBytes(Gpt2Config config) {
    long widest = Math.max(3L * config.nEmbd(), config.nInner());
    return Math.max(CHUNK, Int8Weights.GROUP * widest) * Float.BYTES;
  }

  CudaWeights(Gpu gpu) {
    this.gpu = gpu;
    kernels = new WeightKernels(gpu);
    pointwise = new PointwiseKernels(gpu);
    chunk = gpu.allocate(Element.F32, CHUNK);
  }

  /**
   * Uploads the weight of a Linear.
   *
   * @param stored [in, out]
   * @param to [out, in]
   */
  void uploadWeight(StoredTensor stored, LinearMap to) {
    int rows = rows(to.outputs(), Int8Weights.GROUP);
    try (Arena one = Arena.ofConfined()) {
      MemorySegment data = stored.data(one);
      for (int first = 0; first < to.in(); first += rows) {
        int n = Math.min(rows, to.in() - first);
        DeviceBuffer piece =
            piece(stored, data, (long) first * to.outputs(), (long) n * to.outputs());
        if (to.scales() == null) {
          kernels.repack(piece, first, n, to);
        } else {
          kernels.quantise(piece, first, n, to);
        }
      }
    }
    gpu.synchronize(); // the next chunk takes the place of this one
  }

  /** Uploads a table, in rows as the checkpoint has it. */
  void uploadTable(StoredTensor stored, DeviceBuffer to) {
    long elements = stored.elements();
    try (Arena one = Arena.ofConfined()) {
      MemorySegment data = stored.data(one);
      for (long at = 0; at < elements; at += CHUNK) {
        long n = Math.min(CHUNK, elements - at);
        pointwise.convert(piece(stored, data, at, n), to.slice(at, n), n);
      }
    }
  }

  /** Uploads a table as int8 with scales along its rows. */
  void quantiseTable(StoredTensor stored, LinearMap to) {
    int rows = rows(to.in(), 1);
    try (Arena one = Arena.ofConfined()) {
      MemorySegment data = stored.data(one);
      for (int first = 0; first < to.outputs(); first += rows) {
        int n = Math.min(rows, to.outputs() - first);
        DeviceBuffer piece = piece(stored, data, (long) first * to.in(), (long) n * to.in());
        kernels.quantiseTable(piece, first, n, to);
      }
    }
  }

  /** Rows of {@code width} that fill a chunk, in whole groups. */
  private static int rows(int width, int group) {
    return Math.max(1, CHUNK / width / group) * group;
  }

  /** Elements of a checkpoint on the device. A copy to it waits for what was launched before. */
  private DeviceBuffer piece(StoredTensor stored, MemorySegment data, long first, long count) {
    if (chunk.elements() < count) { // a very wide matrix: a group of its rows is more than a chunk
      chunk.close();
      chunk = gpu.allocate(Element.F32, count);
    }
    if (stored.dtype() == DType.F64) {
      float[] narrow = new float[Math.toIntExact(count)];
      DType.F64.decode(data, first * DType.F64.bytes(), narrow, 0, narrow.length);
      chunk.upload(narrow);
      return chunk.slice(0, count);
    }
    long bytes = stored.dtype().bytes();
    DeviceBuffer piece = chunk.as(element(stored.dtype())).slice(0, count);
    piece.upload(data.asSlice(first * bytes, count * bytes));
    return piece;
  }

  private static Element element(DType dtype) {
    return switch (dtype) {
      case F32, F64 -> Element.F32;
      case F16 -> Element.F16;
      case BF16 -> Element.BF16;
    };
  }

  @Override
  public void close() {
    chunk.close();
  }
}
