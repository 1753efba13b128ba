package dev.loupe.ops.cuda;

import dev.loupe.kernels.DeviceBuffer;
import dev.loupe.kernels.Element;
import dev.loupe.kernels.Gpu;
import dev.loupe.kernels.GpuException;
import dev.loupe.kernels.Graph;
import dev.loupe.kernels.HostBuffer;
import dev.loupe.kernels.Mark;
import dev.loupe.kernels.SampleKernels;
import dev.loupe.kernels.SamplingOptions;
import dev.loupe.kernels.Segment;
import dev.loupe.kernels.Segments;
import dev.loupe.kernels.StepKernels;
import dev.loupe.ops.AttentionInput;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.AttentionPlan.Kind;
import dev.loupe.ops.AttentionTap;
import dev.loupe.ops.Batch;
import dev.loupe.ops.Ops;
import dev.loupe.ops.StepPlan;
import dev.loupe.ops.Steps;
import dev.loupe.ops.Tensor;
import dev.loupe.sampling.Sampling;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Objects;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * Decoding without the host: the whole step, sampling included, is recorded as a CUDA graph and
 * replayed; the chosen ids stay on the device, and what the host wants of a step is copied to
 * pinned memory while the next ones run. There is a graph for each of a few slots, which differ
 * only in where their results go, so a slot's results rest until the host has taken them.
 */
final class CudaSteps implements Steps {
  /** Slots, and so how many steps the device may be ahead. */
  static final int SLOTS = 4;

  /** I32 that a step leaves of each sequence. */
  static final int RESULT = StepKernels.RESULT_INTS;

  /** Where the results of every {@link #SLOTS}th step go. */
  private static final class Slot {
    final HostBuffer result;
    final @Nullable HostBuffer logits;
    final @Nullable DeviceBuffer maps;
    final @Nullable HostBuffer hostMaps;
    final Mark computed;
    final Mark mark; // all of it is on the host
    @Nullable Graph graph;

    Slot(
        HostBuffer result,
        @Nullable HostBuffer logits,
        @Nullable DeviceBuffer maps,
        @Nullable HostBuffer hostMaps,
        Mark computed,
        Mark mark) {
      this.result = result;
      this.logits = logits;
      this.maps = maps;
      this.hostMaps = hostMaps;
      this.computed = computed;
      this.mark = mark;
    }
  }

  private final StepPlan plan;
  private final CudaOps ops;
  private final Gpu gpu;
  private final CudaArena arena;
  private final CudaPass pass;
  private final int rows;
  private final int vocabulary;
  private final boolean graphs;
  private final SampleKernels sampler;
  private final StepKernels stepping;
  private final int[] heads; // whose attention is wanted
  private final SamplingOptions options;
  private final CudaPass.Rows at;
  private final DeviceBuffer place;
  private final DeviceBuffer samples;
  private final SampleKernels.Chosen chosen;
  private final DeviceBuffer result;
  private final @Nullable DeviceBuffer allowed;
  private final @Nullable DeviceBuffer seen;
  private final Batch batch;
  private final List<Slot> slots = new ArrayList<>();
  private int position; // of the tokens that the next pass to be started reads
  private int started;
  private int taken;
  private boolean warm; // a pass has run, so that recording one allocates nothing

  CudaSteps(CudaOps ops, CudaArena arena, StepPlan plan, boolean graphs) {
    this.ops = ops;
    this.gpu = ops.gpu();
    this.arena = arena;
    this.plan = plan;
    this.graphs = graphs;
    rows = plan.kv().sequences();
    vocabulary = plan.logits().cols();
    pass = arena.pass();
    sampler = new SampleKernels(gpu);
    stepping = new StepKernels(gpu);
    options = options(plan.sampling());
    int lane = Math.ceilDiv(rows, 4) * 4; // each list at a multiple of 16 bytes
    DeviceBuffer lists = arena.buffer(Element.I32, 8L * lane);
    at =
        new CudaPass.Rows(
            lists,
            lists.slice(0, lane),
            lists.slice(lane, lane),
            lists.slice(2L * lane, lane),
            lists.slice(3L * lane, lane),
            arena.own(new Segments(gpu, rows)),
            lane);
    place = lists.slice(4L * lane, lane);
    samples = lists.slice(5L * lane, lane);
    chosen =
        new SampleKernels.Chosen(
            at.ids(),
            arena.buffer(Element.F32, lane),
            lists.slice(6L * lane, lane),
            lists.slice(7L * lane, lane));
    result = arena.buffer(Element.I32, (long) RESULT * rows);
    allowed = plan.allowed().cardinality() == vocabulary ? null : bits(plan.allowed(), 1);
    seen = plan.sampling().repetitionPenalty() == 1 ? null : bits(plan.seen(), rows);
    batch = Batch.step(IntStream.range(0, rows).toArray());
    heads = plan.attention().stream().flatMap(a -> a.heads().stream()).mapToInt(h -> h).toArray();
    long mapBytes = plan.attention().map(a -> mapBytes(a, rows, plan.kv().capacity())).orElse(0L);
    for (int i = 0; i < SLOTS; i++) {
      slots.add(slot(mapBytes));
    }
    position = plan.kv().length(0) - 1; // the first result moves it on, without a pass
    place(new int[rows], plan.place());
  }

  private Slot slot(long mapBytes) {
    boolean maps = mapBytes > 0;
    return new Slot(
        arena.own(gpu.pin((long) RESULT * rows * Integer.BYTES)),
        plan.wantsLogits() ? arena.own(gpu.pin((long) rows * vocabulary * Float.BYTES)) : null,
        maps ? arena.buffer(Element.F32, mapBytes / Float.BYTES) : null,
        maps ? arena.own(gpu.pin(mapBytes)) : null,
        arena.own(gpu.mark()),
        arena.own(gpu.mark()));
  }

  /** Bytes of the attention of a step: of each kind, [layers] blocks of [heads, rows] rows. */
  static long mapBytes(AttentionPlan plan, int rows, int capacity) {
    return plan.kept().stream()
        .mapToLong(kind -> plan.layers().size() * blockBytes(plan, kind, rows, capacity))
        .sum();
  }

  /** Bytes of one layer; each begins at a multiple of 16. */
  private static long blockBytes(AttentionPlan plan, Kind kind, int rows, int capacity) {
    return Math.ceilDiv(plan.bytes(kind, rows, capacity), 16L) * 16;
  }

  /** Where a layer's attention lies among a step's, in bytes. */
  private static long blockStart(AttentionPlan plan, Kind kind, int layer, int rows, int capacity) {
    long at = layer * blockBytes(plan, kind, rows, capacity);
    for (Kind before : plan.kept()) {
      if (before.compareTo(kind) < 0) {
        at += plan.layers().size() * blockBytes(plan, before, rows, capacity);
      }
    }
    return at;
  }

  /** How the rows of a layer's attention lie. */
  private CudaMaps.RowLayout rowsOf(AttentionPlan plan, Kind kind) {
    return new CudaMaps.RowLayout(
        kind, plan.dtype(kind), heads.length * rows, plan.columns(kind, this.plan.kv().capacity()));
  }

  private DeviceBuffer ints(int[] values) {
    DeviceBuffer buffer = arena.buffer(Element.I32, values.length);
    buffer.upload(values);
    return buffer;
  }

  /** {@code copies} of a bit set over the vocabulary. */
  private DeviceBuffer bits(BitSet ids, int copies) {
    int words = Math.ceilDiv(vocabulary, Integer.SIZE);
    int[] values = new int[copies * words];
    ids.stream()
        .filter(id -> id < vocabulary)
        .forEach(
            id -> {
              for (int c = 0; c < copies; c++) {
                values[c * words + id / Integer.SIZE] |= 1 << id % Integer.SIZE;
              }
            });
    return ints(values);
  }

  private static SamplingOptions options(Sampling s) {
    return new SamplingOptions(
        (float) s.temperature(),
        s.topK(),
        s.topP(),
        s.minP(),
        (float) s.repetitionPenalty(),
        s.seed());
  }

  /** Tells the device which tokens come next and where. */
  private void place(int[] ids, int placeOfNext) {
    int lane = at.capacity();
    int[] values = new int[8 * lane];
    List<Segment> segments = new ArrayList<>();
    for (int r = 0; r < rows; r++) {
      values[r] = ids[r];
      values[lane + r] = r;
      values[2 * lane + r] = position;
      values[3 * lane + r] = position + 1;
      values[4 * lane + r] = placeOfNext;
      values[5 * lane + r] = r;
      segments.add(new Segment(r, 1, r, position));
    }
    at.all().upload(values);
    at.segments().set(segments);
  }

  @Override
  public void next() {
    if (taken == plan.limit()) {
      throw new IllegalStateException(
          "%d results were taken, no more were planned".formatted(taken));
    }
    gpu.run(
        () -> {
          while (started < Math.min(plan.limit(), taken + SLOTS)
              && (started == 0 || position < plan.positions())) {
            start();
          }
          if (taken == started) {
            throw new IllegalStateException("the context is full");
          }
          slots.get(taken % SLOTS).mark.await();
        });
    taken++;
  }

  private void start() {
    Slot slot = slots.get(started % SLOTS);
    pass.resident(at);
    try {
      if (started == 0) {
        spread();
        choose(slot);
      } else {
        for (int r = 0; r < rows; r++) {
          batch.set(r, 0, position); // the ids are on the device
        }
        pass.hold(); // a recording could not wait for what was put on the stream before it
        if (!graphs || !warm) {
          step(slot);
          warm = true;
        } else if (slot.graph == null) {
          Graph graph = arena.own(gpu.record(() -> step(slot)));
          slot.graph = graph;
          graph.launch();
        } else {
          plan.kv().extend(batch);
          slot.graph.launch();
        }
      }
    } finally {
      pass.resident(null);
    }
    if (slot.maps == null || started == 0) {
      slot.mark.set();
    } else {
      bringMaps(slot);
    }
    position++;
    started++;
  }

  /** The maps go to the host beside the next step. */
  private void bringMaps(Slot slot) {
    DeviceBuffer maps = Objects.requireNonNull(slot.maps);
    HostBuffer host = Objects.requireNonNull(slot.hostMaps);
    slot.computed.set();
    pass.maps()
        .copyBehind(
            slot.computed,
            () -> {
              host.copyFrom(maps, maps.elements(), 0);
              slot.mark.set();
            });
  }

  /** All sequences continue the same prompt. */
  private void spread() {
    DeviceBuffer logits = ops.buffer(plan.logits());
    for (int r = 1; r < rows; r++) {
      logits.slice((long) r * vocabulary, vocabulary).copyFrom(logits, vocabulary);
    }
  }

  private void step(Slot slot) {
    plan.pass().run(batch, plan.attention().map(a -> tap(a, slot)).orElse(AttentionTap.NONE));
    pass.hold(); // choosing moves the positions on, by which maps are rebuilt
    choose(slot);
  }

  private AttentionTap tap(AttentionPlan wanted, Slot slot) {
    DeviceBuffer maps = Objects.requireNonNull(slot.maps);
    return (Ops o, AttentionInput in, Tensor lse) -> {
      int layer = wanted.layers().indexOf(in.layer());
      if (layer < 0) {
        return;
      }
      for (Kind kind : wanted.kept()) {
        CudaMaps.RowLayout block = rowsOf(wanted, kind);
        long start = blockStart(wanted, kind, layer, rows, plan.kv().capacity());
        DeviceBuffer out =
            maps.slice(start / Float.BYTES, Math.ceilDiv(block.bytes(), Float.BYTES));
        pass.maps().rebuild(in, ops.buffer(lse), at, heads, 0, rows, block, out);
      }
    };
  }

  /** From logits to ids, and on to the next position. */
  private void choose(Slot slot) {
    DeviceBuffer logits = ops.buffer(plan.logits());
    sampler.sample(
        new SampleKernels.Logits(logits, rows, vocabulary),
        allowed,
        seen,
        samples,
        place,
        options,
        chosen);
    stepping.advance(
        chosen,
        new StepKernels.Rows(
            at.sequences(), at.positions(), place, at.keys(), at.segments().buffer()),
        result,
        rows);
    slot.result.copyFrom(result, (long) RESULT * rows, 0);
    if (slot.logits != null) {
      slot.logits.copyFrom(logits, (long) rows * vocabulary, 0);
    }
  }

  /** The slot of the result that was taken last. */
  private Slot current() {
    return slots.get((taken - 1) % SLOTS);
  }

  private int result(int sequence, int i) {
    return current().result.memory().getAtIndex(ValueLayout.JAVA_INT, (long) sequence * RESULT + i);
  }

  @Override
  public int id(int sequence) {
    int id = result(sequence, 0);
    int error = result(sequence, 1);
    if (error == SampleKernels.NO_ID) {
      throw new GpuException("the GPU chose no token, as if none were allowed");
    }
    if (error != 0 || !plan.allowed().get(id < 0 ? vocabulary : id)) {
      throw new GpuException(
          "the GPU computes wrongly: it chose token %d of %d with error %d (--backend cpu)"
              .formatted(id, vocabulary, error));
    }
    return id;
  }

  @Override
  public boolean isFinite(int sequence) {
    return result(sequence, 1) != SampleKernels.NOT_FINITE;
  }

  @Override
  public void logits(int sequence, float[] into) {
    copy(current().logits, (long) sequence * vocabulary, into, vocabulary);
  }

  @Override
  public void attention(Kind kind, int sequence, int layer, int head, float[] into, int count) {
    HostBuffer from = current().hostMaps;
    AttentionPlan wanted = plan.attention().orElse(null);
    if (from == null || wanted == null) {
      throw new IllegalStateException("it was not planned for");
    }
    long start = blockStart(wanted, kind, layer, rows, plan.kv().capacity());
    rowsOf(wanted, kind).read(from.memory(), start, head * rows + sequence, into, count);
  }

  private static void copy(@Nullable HostBuffer from, long first, float[] into, int count) {
    if (from == null) {
      throw new IllegalStateException("it was not planned for");
    }
    MemorySegment.copy(from.memory(), ValueLayout.JAVA_FLOAT, first * Float.BYTES, into, 0, count);
  }

  @Override
  public void restart(int[] ids, int position) {
    if (taken != started) {
      throw new IllegalStateException("%d steps are under way".formatted(started - taken));
    }
    for (int s = 0; s < rows; s++) {
      plan.kv().truncate(s, position);
    }
    this.position = position;
    place(ids, plan.place() + taken);
  }

  /** Waits for the steps that are ahead; what they use is freed with the session. */
  @Override
  public void close() {
    gpu.synchronize();
  }
}
