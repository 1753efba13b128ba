package dev.loupe.ops.cuda;

import dev.loupe.kernels.DeviceBuffer;
import dev.loupe.kernels.Element;
import dev.loupe.kernels.Int8Weights;
import dev.loupe.kernels.LinearMap;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.ops.Weight;
import dev.loupe.ops.cuda.CudaOps.CudaWeight;
import dev.loupe.weights.DType;
import dev.loupe.weights.StoredTensor;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Device memory of one model or one session, and what a session's passes need beside it. */
final class CudaArena implements TensorArena {
  private final CudaOps ops;
  private final List<AutoCloseable> owned = new ArrayList<>();
  private final List<Long> addresses = new ArrayList<>();
  private @Nullable CudaPass pass;

  CudaArena(CudaOps ops) {
    this.ops = ops;
  }

  @Override
  public Tensor allocate(int rows, int cols) {
    return allocate(Element.F32, rows, cols);
  }

  @Override
  public Tensor activations(int rows, int cols) {
    return allocate(ops.activations(), rows, cols);
  }

  private Tensor allocate(Element element, int rows, int cols) {
    DeviceBuffer buffer = buffer(element, Math.max(1, (long) rows * cols));
    buffer.fill((byte) 0);
    return tensor(buffer, rows, cols);
  }

  /** Device memory that is freed with this arena. */
  DeviceBuffer buffer(Element element, long elements) {
    DeviceBuffer buffer = ops.gpu().allocate(element, elements);
    own(buffer);
    addresses.add(buffer.address());
    ops.register(buffer, this);
    return buffer;
  }

  /** Closes {@code resource} with this arena. */
  <T extends AutoCloseable> T own(T resource) {
    owned.add(resource);
    return resource;
  }

  private static Tensor tensor(DeviceBuffer buffer, int rows, int cols) {
    DType dtype =
        switch (buffer.element()) {
          case F16 -> DType.F16;
          case BF16 -> DType.BF16;
          default -> DType.F32;
        };
    return new Tensor(dtype, rows, cols, MemorySegment.ofAddress(buffer.address()));
  }

  @Override
  public Weight weight(StoredTensor stored) {
    int in = Math.toIntExact(stored.shape().getFirst());
    int outputs = Math.toIntExact(stored.shape().getLast());
    LinearMap map = map(ops.weights(), in, outputs);
    ops.loading().uploadWeight(stored, map);
    return new CudaWeight(map);
  }

  private LinearMap map(Element element, int in, int outputs) {
    DeviceBuffer weight = buffer(element, (long) in * outputs);
    long groups = Math.ceilDiv(in, Int8Weights.GROUP);
    DeviceBuffer scales = element == Element.I8 ? buffer(Element.F32, outputs * groups) : null;
    return new LinearMap(weight, scales, null, in, outputs);
  }

  @Override
  public Tensor table(StoredTensor stored) {
    int rows = Math.toIntExact(stored.shape().getFirst());
    int cols = Math.toIntExact(stored.shape().getLast());
    DeviceBuffer table = buffer(ops.activations(), (long) rows * cols);
    ops.loading().uploadTable(stored, table);
    return tensor(table, rows, cols);
  }

  @Override
  public Weight head(StoredTensor stored, @Nullable Tensor tied) {
    int rows = Math.toIntExact(stored.shape().getFirst());
    int cols = Math.toIntExact(stored.shape().getLast());
    if (ops.weights() == Element.I8) { // bytes of its own: the embedding reads a float table
      LinearMap map = map(Element.I8, cols, rows);
      ops.loading().quantiseTable(stored, map);
      return new CudaWeight(map);
    }
    Tensor head = tied == null ? table(stored) : tied;
    return new CudaWeight(new LinearMap(ops.buffer(head), null, null, cols, rows));
  }

  @Override
  public Tensor vector(StoredTensor stored) {
    int n = Math.toIntExact(stored.elements());
    float[] values = new float[n];
    stored.read(0, values, 0, n);
    DeviceBuffer buffer = buffer(Element.F32, n);
    buffer.upload(values);
    return tensor(buffer, 1, n);
  }

  /** What this session's passes need on the device; made by its first pass. */
  CudaPass pass() {
    CudaPass made = pass;
    if (made == null) {
      made = new CudaPass(ops, this);
      pass = made;
    }
    return made;
  }

  @Override
  public void close() {
    addresses.forEach(ops::forget);
    addresses.clear();
    RuntimeException failure = null; // one that can't be freed must not keep the others
    for (AutoCloseable resource : owned.reversed()) {
      try {
        resource.close();
      } catch (Exception e) {
        failure = e instanceof RuntimeException r ? r : new IllegalStateException(e);
      }
    }
    owned.clear();
    if (failure != null) {
      throw failure;
    }
  }
}
