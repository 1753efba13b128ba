package dev.loupe.cuda.kernels;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import java.util.ArrayList;
import java.util.List;

/** An attention problem on the device, as its attention kernel would leave it for the maps. */
final class MapProblem implements AutoCloseable {
  final CachedAttention host;
  final int[][] segments;
  final boolean causal;
  final AttentionMapKernels kernels;
  private final Gpu gpu;
  private final List<DeviceBuffer> buffers = new ArrayList<>();
  private final DeviceBuffer qkv;
  private final DeviceBuffer k;
  private final DeviceBuffer lse;
  private final DeviceBuffer segmentBuffer;

  /**
   * @param segments {first row, rows, sequence, first position}, together all rows
   */
  MapProblem(Gpu gpu, CachedAttention host, int[][] segments, boolean causal) {
    this.gpu = gpu;
    this.host = host;
    this.segments = segments;
    this.causal = causal;
    kernels = new AttentionMapKernels(gpu, host.shape, host.activations, host.cache);
    qkv = floats(host.activations, host.qkv);
    k = floats(host.cache, host.k);
    float[] sums = new float[host.rows * host.shape.heads()];
    for (int row = 0; row < host.rows; row++) {
      for (int head = 0; head < host.shape.heads(); head++) {
        sums[row * host.shape.heads() + head] = (float) row(row, head).lse;
      }
    }
    lse = floats(Element.F32, sums);
    int[] flat = new int[4 * segments.length];
    for (int i = 0; i < flat.length; i++) {
      flat[i] = segments[i / 4][i % 4];
    }
    segmentBuffer = ints(flat);
  }

  AttentionMapKernels.Source source() {
    return new AttentionMapKernels.Source(
        qkv, k, lse, segmentBuffer, segments.length, causal, host.scale);
  }

  /** The same with other segments than the answer's. */
  AttentionMapKernels.Source source(int... segment) {
    return new AttentionMapKernels.Source(
        qkv, k, lse, ints(segment), segment.length / 4, causal, host.scale);
  }

  AttentionMapKernels.Selection select(int[] heads, int firstRow, int rows) {
    return new AttentionMapKernels.Selection(ints(heads), heads.length, firstRow, rows);
  }

  int position(int row) {
    int[] segment = segment(row);
    return segment[3] + row - segment[0];
  }

  int keys(int row) {
    int[] segment = segment(row);
    return causal ? position(row) + 1 : segment[3] + segment[1];
  }

  CachedAttention.Row row(int row, int head) {
    return host.row(row, head, segment(row)[2], keys(row));
  }

  private int[] segment(int row) {
    for (int[] segment : segments) {
      if (row >= segment[0] && row < segment[0] + segment[1]) {
        return segment;
      }
    }
    throw new IllegalArgumentException("row " + row + " is in no segment");
  }

  DeviceBuffer floats(Element element, float[] values) {
    DeviceBuffer buffer = poisoned(element, values.length);
    buffer.upload(values);
    return buffer;
  }

  private DeviceBuffer ints(int[] values) {
    DeviceBuffer buffer = poisoned(Element.I32, values.length);
    buffer.upload(values);
    return buffer;
  }

  /** Every byte 0xff: NaN, or -1. */
  DeviceBuffer poisoned(Element element, long elements) {
    DeviceBuffer buffer = gpu.allocate(element, elements);
    buffers.add(buffer);
    buffer.fill((byte) 0xff);
    return buffer;
  }

  @Override
  public void close() {
    buffers.forEach(DeviceBuffer::close);
  }
}
