package dev.loupe.ops.cuda;

import dev.loupe.cuda.CudaEvent;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.kernels.Int8Weights;
import dev.loupe.cuda.kernels.LinearMap;
import dev.loupe.ops.StepPlan;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.ops.Weight;
import dev.loupe.ops.cuda.CudaMatmul.CudaWeight;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Device memory of one model or one session, and what a session's passes need beside it.
 *
 * <p>That of a session that ended well goes to the {@link SessionPool} with all that its passes and
 * steps made. The next session of the same size asks for the same tensors in the same order and
 * gets the same memory, so that launches that were prepared, and graphs that were recorded, are
 * good for it too.
 */
final class CudaArena implements TensorArena {
  private final CudaOps ops;
  private final SessionPool.@Nullable Key key; // null: not kept
  private final List<AutoCloseable> owned = new ArrayList<>();
  private final List<DeviceBuffer> given = new ArrayList<>(); // of this session's tensors
  private final List<Long> addresses = new ArrayList<>(); // of the same
  private final List<DeviceBuffer> kept = new ArrayList<>(); // of tensors of an earlier session
  private final Map<StepRoom.Key, StepRoom> stepRooms = new HashMap<>();
  private @Nullable CudaWeights loading;
  private @Nullable CudaSession session;
  private @Nullable CudaEvent done; // all that an earlier session put on the GPU's streams
  private boolean reusable;
  private boolean closed;

  CudaArena(CudaOps ops) {
    this(ops, null);
  }

  /**
   * @param key as which it is kept once its session has ended
   */
  CudaArena(CudaOps ops, SessionPool.@Nullable Key key) {
    this.ops = ops;
    this.key = key;
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
    long elements = Math.max(1, (long) rows * cols);
    for (Iterator<DeviceBuffer> each = kept.iterator(); each.hasNext(); ) {
      DeviceBuffer buffer = each.next();
      if (buffer.element() == element && buffer.elements() == elements) {
        each.remove();
        return tensor(give(buffer), rows, cols);
      }
    }
    return tensor(give(buffer(element, elements)), rows, cols);
  }

  /** Lets tensors lie in {@code buffer}. */
  private DeviceBuffer give(DeviceBuffer buffer) {
    given.add(buffer);
    addresses.add(buffer.address());
    ops.tensors().register(buffer, this);
    return buffer;
  }

  /** Device memory that is freed with this arena. */
  DeviceBuffer buffer(Element element, long elements) {
    return own(ops.gpu().allocate(element, elements));
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
    loading().uploadWeight(stored, map);
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
    DeviceBuffer table = give(buffer(ops.activations(), (long) rows * cols));
    loading().uploadTable(stored, table);
    return tensor(table, rows, cols);
  }

  @Override
  public Weight head(StoredTensor stored, @Nullable Tensor tied) {
    int rows = Math.toIntExact(stored.shape().getFirst());
    int cols = Math.toIntExact(stored.shape().getLast());
    if (ops.weights() == Element.I8) { // bytes of its own: the embedding reads a float table
      LinearMap map = map(Element.I8, cols, rows);
      loading().quantiseTable(stored, map);
      return new CudaWeight(map);
    }
    Tensor head = tied == null ? table(stored) : tied;
    return new CudaWeight(new LinearMap(ops.buffer(head), null, null, cols, rows));
  }

  @Override
  public Tensor vector(StoredTensor stored) {
    int n = Math.toIntExact(stored.elements());
    DeviceBuffer buffer = give(buffer(Element.F32, n));
    loading().uploadVector(stored, buffer);
    return tensor(buffer, 1, n);
  }

  /** Brings weights to the device; made when the first one comes. */
  private CudaWeights loading() {
    CudaWeights l = loading;
    if (l == null) {
      l = new CudaWeights(ops);
      loading = l;
    }
    return l;
  }

  @Override
  public void loaded() {
    CudaWeights l = loading;
    loading = null;
    if (l != null) {
      l.close();
    }
  }

  /** What this session's passes need on the device; made by its first pass. */
  CudaSession session() {
    CudaSession made = session;
    if (made == null) {
      made = new CudaSession(ops, this);
      session = made;
    }
    return made;
  }

  /** What steps of such a plan need, left by an earlier session if this is kept. */
  StepRoom stepRoom(StepPlan plan) {
    if (key == null) {
      return new StepRoom(ops, this, plan);
    }
    StepRoom.Key of = StepRoom.key(plan, addresses);
    return stepRooms.computeIfAbsent(of, any -> new StepRoom(ops, this, plan));
  }

  @Override
  public void keep() {
    reusable = key != null;
  }

  /** Whether its memory and all that was kept with it may serve a session again. */
  boolean isClosed() {
    return closed;
  }

  /**
   * Lets the next session begin.
   *
   * @throws GpuException if what the last one left on the GPU's streams failed; then it is freed
   */
  void wake() {
    closed = false;
    reusable = false;
    try {
      if (done != null) {
        done.await();
      }
    } catch (RuntimeException e) {
      free();
      throw e;
    }
  }

  @Override
  public void close() {
    if (closed) {
      return;
    }
    closed = true;
    if (key != null && reusable && rest()) {
      ops.room().keep(key, this);
      return;
    }
    free();
  }

  /** Notes where the session's work on the streams ends; false if the GPU fails. */
  private boolean rest() {
    forget();
    kept.addAll(0, given); // in the order in which the next session asks
    given.clear();
    try {
      ops.gpu().run(() -> mark().set());
      return true;
    } catch (GpuException e) {
      return false;
    }
  }

  /** The mark, behind which all streams are idle once it was set. */
  private CudaEvent mark() {
    CudaEvent mark = done;
    if (mark == null) {
      mark = own(ops.gpu().mark());
      done = mark;
    }
    if (session != null) {
      session.join();
    }
    return mark;
  }

  private void forget() {
    addresses.forEach(ops.tensors()::forget);
    addresses.clear();
  }

  /** Gives everything back to the driver, once the streams are done with it. */
  void free() {
    closed = true;
    ops.room().forget(this); // sessions before the weights that they read
    forget();
    given.clear();
    kept.clear();
    stepRooms.clear();
    owned.add(this::loaded); // as reversed, first
    Gpu gpu = ops.gpu();
    RuntimeException failure = null; // one that can't be freed must not keep the others
    if (!gpu.isClosed() && !gpu.isLost()) {
      try {
        gpu.run(
            () -> {
              CudaEvent mark = mark();
              mark.set();
              mark.await();
            });
      } catch (GpuException e) {
        failure = e;
      }
    }
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
