package dev.loupe.ops.cuda;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.kernels.AttentionKernels;
import dev.loupe.cuda.kernels.CacheShape;
import dev.loupe.cuda.kernels.DecodeAttention;
import dev.loupe.cuda.kernels.LinearCall;
import dev.loupe.cuda.kernels.Segment;
import dev.loupe.cuda.kernels.Segments;
import dev.loupe.ops.Attention;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * What the passes of one session have on the device beside their tensors: which token each row is,
 * and kernels with the scratch and prepared launches of this session's shapes.
 */
final class CudaSession {
  private final CudaOps ops;
  private final CudaArena arena;
  private @Nullable Rows rows; // of passes that the host describes
  private final Map<CacheShape, AttentionKernels> attention = new HashMap<>();
  private final Map<Cells, DecodeAttention> decode = new HashMap<>();
  private final Map<List<Object>, LinearCall> calls = new HashMap<>();
  private @Nullable CudaMaps maps;

  CudaSession(CudaOps ops, CudaArena arena) {
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

  /**
   * Tells the device which token each row of a pass is.
   *
   * @param most most rows that a pass of this session may have
   */
  Rows describe(Batch batch, int most) {
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

  /** What kernels are made for: caches of passes that read whole texts differ in shape. */
  record Cells(CacheShape shape, Element element) {}

  static CacheShape shape(KvCache kv) {
    return new CacheShape(kv.sequences(), kv.heads(), kv.capacity(), kv.headDim());
  }

  /** A prepared linear map; the key says of which buffers and cache. */
  LinearCall call(List<Object> key, Supplier<LinearCall> prepare) {
    return calls.computeIfAbsent(key, k -> prepare.get());
  }

  /** {@link Attention#attend}. */
  void attend(Attention in, Rows r, DeviceBuffer y) {
    KvCache kv = in.kv();
    DeviceBuffer qkv = ops.buffer(in.qkv());
    DeviceBuffer lse = ops.buffer(in.lse());
    DeviceBuffer keys = ops.buffer(kv.keys(in.layer()));
    DeviceBuffer values = ops.buffer(kv.values(in.layer()));
    if (r.segments().count() == in.batch().rows() && in.isCausal()) {
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
        in.isCausal(),
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

  /** Allocates what decoding steps need beside their rows. */
  void prepareSteps(KvCache kv, int[] heads) {
    DecodeAttention _ = decode(kv, Element.F32);
    if (heads.length > 0) {
      maps().prepare(heads, kv.heads());
    }
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
}
