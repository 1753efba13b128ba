package dev.loupe.ops.cuda;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.ops.Ops;
import dev.loupe.ops.Tensor;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentSkipListMap;

/**
 * Device memory behind tensors. A {@link Tensor} carries an address alone; this finds the
 * allocation that it lies in.
 */
final class CudaTensors {
  /** Device memory and the arena that it ends with. */
  record Block(DeviceBuffer buffer, CudaArena arena) {}

  private final ConcurrentSkipListMap<Long, Block> blocks = new ConcurrentSkipListMap<>();

  void register(DeviceBuffer buffer, CudaArena arena) {
    blocks.put(buffer.address(), new Block(buffer, arena));
  }

  void forget(long address) {
    blocks.remove(address);
  }

  /**
   * The allocation that a tensor lies in.
   *
   * @throws IllegalStateException if it was freed
   */
  Block block(Tensor t) {
    Map.Entry<Long, Block> entry = blocks.floorEntry(t.data().address());
    if (entry == null
        || t.data().address() + t.byteSize() > entry.getKey() + entry.getValue().buffer().bytes()) {
      throw new IllegalStateException(
          "a tensor of %d x %d was freed".formatted(t.rows(), t.cols()));
    }
    return entry.getValue();
  }

  /** Where a tensor lies, and what follows it in the same allocation. */
  DeviceBuffer buffer(Tensor t) {
    DeviceBuffer whole = block(t).buffer();
    long from = (t.data().address() - whole.address()) / whole.element().bytes();
    return from == 0 ? whole : whole.slice(from, whole.elements() - from);
  }

  /** What the session of a tensor's memory has beside tensors. */
  CudaSession session(Tensor t) {
    return block(t).arena().session();
  }

  /** {@link Ops#copy}. */
  void copy(Tensor from, Tensor to) {
    CudaOps.same("rows", to.rows(), from.rows());
    CudaOps.same("width", to.cols(), from.cols());
    if (from.data().address() != to.data().address()) {
      buffer(to).copyFrom(buffer(from), (long) from.rows() * from.cols());
    }
  }

  /** {@link Ops#read}. */
  void read(Tensor from, int row, float[] into, int count) {
    Tensor one = from.rows(row, 1);
    if (count > from.cols() || count > into.length) {
      throw new IndexOutOfBoundsException(
          "%d columns of %d into %d".formatted(count, from.cols(), into.length));
    }
    if (count == into.length) {
      buffer(one).download(into);
      return;
    }
    float[] values = new float[count];
    buffer(one).download(values);
    System.arraycopy(values, 0, into, 0, count);
  }

  /** {@link Ops#write}. */
  void write(float[] from, Tensor to) {
    int count = Math.multiplyExact(to.rows(), to.cols());
    if (count > from.length) {
      throw new IndexOutOfBoundsException(
          "%d numbers for %d x %d".formatted(from.length, to.rows(), to.cols()));
    }
    buffer(to).upload(count == from.length ? from : Arrays.copyOf(from, count));
  }
}
