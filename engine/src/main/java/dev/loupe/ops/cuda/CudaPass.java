package dev.loupe.ops.cuda;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.kernels.AttentionKernels;
import dev.loupe.cuda.kernels.CacheShape;
import dev.loupe.cuda.kernels.DecodeAttention;
import dev.loupe.cuda.kernels.LinearCall;
import dev.loupe.cuda.kernels.Segment;
import dev.loupe.cuda.kernels.Segments;
import dev.loupe.ops.AttentionInput;
import dev.loupe.ops.AttentionPlan.Kind;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Tensor;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * What the passes of one session have on the device beside their tensors: which token each row is,
 * and kernels with the scratch and prepared launches of this session's shapes.
 */
final class CudaPass {
  private final CudaOps ops;
  private final CudaArena arena;
  private @Nullable Rows rows; // of passes that the host describes
  private @Nullable Rows resident; // of decoding steps, which the device keeps itself
  private final Map<CacheShape, AttentionKernels> attention = new HashMap<>();
  private final Map<Cells, DecodeAttention> decode = new HashMap<>();
  private final Map<List<Object>, LinearCall> calls = new HashMap<>();
  private @Nullable CudaMaps maps;
  private @Nullable DeviceBuffer lse; // of the last attention

  CudaPass(CudaOps ops, CudaArena arena) {
    this.ops = ops;
    this.arena = arena;
  }

  /** The rows of a pass: I32 [rows] each, and the segments they form. */
  record Rows(
      DeviceBuffer all,
      DeviceBuffer ids,
      DeviceBuffer sequences,
      DeviceBuffer positions,
      DeviceBuffer keys,
      Segments segments,
      int capacity) {}

  /** Until told otherwise, passes are of these rows, which are on the device already. */
  void resident(@Nullable Rows rows) {
    resident = rows;
  }

  boolean isResident() {
    return resident != null;
  }

  /**
   * Tells the device which token each row is.
   *
   * @param most most rows that a pass of this session may have
   */
  Rows begin(Batch batch, int most) {
    if (resident != null) {
      return resident;
    }
    Rows r = rows;
    if (r == null || r.capacity() < batch.rows()) {
      r = allocate(Math.ceilDiv(most, 4) * 4); // each list at a multiple of 16 bytes
      rows = r;
    }
    int n = r.capacity();
    int[] values = new int[4 * n];
    for (int i = 0; i < batch.rows(); i++) {
      values[i] = batch.id(i);
      values[n + i] = batch.sequence(i);
      values[2 * n + i] = batch.position(i);
      values[3 * n + i] = batch.position(i) + 1;
    }
    r.all().upload(values);
    r.segments().set(segments(batch));
    return r;
  }

  private Rows allocate(int capacity) {
    DeviceBuffer all = arena.buffer(Element.I32, 4L * capacity);
    return new Rows(
        all,
        all.slice(0, capacity),
        all.slice(capacity, capacity),
        all.slice(2L * capacity, capacity),
        all.slice(3L * capacity, capacity),
        arena.own(new Segments(ops.gpu(), capacity)),
        capacity);
  }

  private static List<Segment> segments(Batch batch) {
    List<Segment> segments = new ArrayList<>();
    int first = 0;
    for (int r = 1; r <= batch.rows(); r++) {
      if (r == batch.rows() || batch.sequence(r) != batch.sequence(first)) {
        segments.add(new Segment(first, r - first, batch.sequence(first), batch.position(first)));
        first = r;
      }
    }
    return segments;
  }

  /** The rows of the pass under way. */
  Rows rows() {
    Rows r = resident == null ? rows : resident;
    if (r == null) {
      throw new IllegalStateException("a pass begins with the embedding");
    }
    return r;
  }

  /** What kernels are made for: caches of passes that read whole texts differ in shape. */
  record Cells(CacheShape shape, Element element) {}

  static CacheShape shape(KvCache kv) {
    return new CacheShape(kv.sequences(), kv.heads(), kv.capacity(), kv.headDim());
  }

  /** A prepared linear map; the key says of which buffers and cache. */
  LinearCall call(List<Object> key, Supplier<LinearCall> prepare) {
    return calls.computeIfAbsent(key, k -> prepare.get());
  }

  void attention(AttentionInput in, DeviceBuffer qkv, DeviceBuffer y, DeviceBuffer lse) {
    this.lse = lse;
    KvCache kv = in.kv();
    DeviceBuffer keys = ops.buffer(kv.keys(in.layer()));
    DeviceBuffer values = ops.buffer(kv.values(in.layer()));
    Rows r = rows();
    if (r.segments().count() == in.batch().rows() && in.mask() == Mask.CAUSAL) {
      decode(kv, qkv.element())
          .run(
              new DecodeAttention.Rows(
                  qkv, r.sequences(), r.keys(), in.batch().rows(), kv.capacity()),
              new DecodeAttention.Cache(keys, values),
              in.scale(),
              y,
              lse);
      return;
    }
    AttentionKernels kernels =
        attention.computeIfAbsent(
            shape(kv), shape -> arena.own(new AttentionKernels(ops.gpu(), shape, keys.element())));
    kernels.run(
        kernels.variantFor(r.segments()),
        r.segments(),
        in.mask() == Mask.CAUSAL,
        in.scale(),
        new AttentionKernels.Buffers(qkv, keys, values, y, lse));
  }

  private DecodeAttention decode(KvCache kv, Element element) {
    return decode.computeIfAbsent(
        new Cells(shape(kv), element),
        c ->
            arena.own(
                new DecodeAttention(
                    ops.gpu(), c.shape(), c.element(), ops.activations(), kv.sequences())));
  }

  /**
   * Rebuilds rows of an attention into {@code out} and lets them come to the host: of the last one
   * of these passes, or, where there was none, of one whose queries and keys were kept.
   *
   * @param kind what of them
   * @param kept log-sum-exp of that attention; null for that of the last
   */
  void map(
      AttentionInput in,
      Kind kind,
      @Nullable DeviceBuffer kept,
      int[] heads,
      int first,
      int count,
      Tensor out) {
    if (rows == null && resident == null) {
      Rows _ = begin(in.batch(), in.batch().rows());
    }
    CudaMaps.RowLayout rows =
        new CudaMaps.RowLayout(kind, out.dtype(), heads.length * count, out.cols());
    DeviceBuffer buffer = ops.buffer(out);
    maps().rebuild(in, kept == null ? lastLse() : kept, rows(), heads, first, count, rows, buffer);
    maps().bring(rows, buffer);
  }

  /** Log-sum-exp of the last attention. */
  private DeviceBuffer lastLse() {
    return Objects.requireNonNull(lse, "attention comes before its maps");
  }

  /** What brings attention to the host; made when the first is asked for. */
  CudaMaps maps() {
    CudaMaps made = maps;
    if (made == null) {
      made = new CudaMaps(ops, arena);
      maps = made;
    }
    return made;
  }

  /** Lets what comes next on the GPU's stream wait for all that these passes left on others. */
  void join() {
    if (maps != null) {
      maps.join();
    }
  }

  /** Before the queries of the last attention are overwritten. */
  void hold() {
    if (maps != null) {
      maps.hold();
    }
  }

  /** Reads a row of what {@link #map} left at {@code address}; false if it left nothing there. */
  boolean readMap(long address, int row, float[] into, int count) {
    return maps != null && maps.read(address, row, into, count);
  }
}
