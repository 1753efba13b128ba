package dev.loupe.ops.cuda;

import dev.loupe.kernels.AttentionMapKernels;
import dev.loupe.kernels.AttentionMapKernels.Cells;
import dev.loupe.kernels.DeviceBuffer;
import dev.loupe.kernels.Element;
import dev.loupe.kernels.Gpu;
import dev.loupe.kernels.Graph;
import dev.loupe.kernels.HostBuffer;
import dev.loupe.kernels.Mark;
import dev.loupe.kernels.SampleKernels;
import dev.loupe.kernels.SamplingOptions;
import dev.loupe.kernels.Segment;
import dev.loupe.kernels.Segments;
import dev.loupe.kernels.StepKernels;
import dev.loupe.ops.AttentionInput;
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
    final Mark mark;
    @Nullable Graph graph;

    Slot(
        HostBuffer result,
        @Nullable HostBuffer logits,
        @Nullable DeviceBuffer maps,
        @Nullable HostBuffer hostMaps,
        Mark mark) {
      this.result = result;
      this.logits = logits;
      this.maps = maps;
      this.hostMaps = hostMaps;
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
  private final @Nullable AttentionMapKernels mapping;
  private final SamplingOptions options;
  private final CudaPass.Rows at;
  private final DeviceBuffer place;
  private final DeviceBuffer samples;
  private final SampleKernels.Chosen chosen;
  private final DeviceBuffer result;
  private final @Nullable DeviceBuffer allowed;
  private final @Nullable DeviceBuffer seen;
  private final @Nullable DeviceBuffer heads;
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
    boolean maps = !plan.layers().isEmpty();
    heads = maps ? ints(plan.heads().stream().mapToInt(h -> h).toArray()) : null;
    mapping =
        maps
            ? new AttentionMapKernels(
                gpu, CudaPass.shape(plan.kv()), Element.F32, ops.activations())
            : null;
    for (int i = 0; i < SLOTS; i++) {
      slots.add(slot(maps));
    }
    position = plan.kv().length(0) - 1; // the first result moves it on, without a pass
    place(new int[rows], plan.place());
  }

  private Slot slot(boolean maps) {
    long cells = maps ? mapCells() * (plan.scores() ? 2L : 1L) : 0;
    return new Slot(
        arena.own(gpu.pin((long) RESULT * rows * Integer.BYTES)),
        plan.wantsLogits() ? arena.own(gpu.pin((long) rows * vocabulary * Float.BYTES)) : null,
        maps ? arena.buffer(Element.F32, cells) : null,
        maps ? arena.own(gpu.pin(cells * Float.BYTES)) : null,
        arena.own(gpu.mark()));
  }

  /** Cells of the maps of a step: [layers, heads, rows, capacity]. */
  private long mapCells() {
    return (long) plan.layers().size() * plan.heads().size() * rows * plan.kv().capacity();
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
    slot.mark.set();
    position++;
    started++;
  }

  /** All sequences continue the same prompt. */
  private void spread() {
    DeviceBuffer logits = ops.buffer(plan.logits());
    for (int r = 1; r < rows; r++) {
      logits.slice((long) r * vocabulary, vocabulary).copyFrom(logits, vocabulary);
    }
  }

  private void step(Slot slot) {
    plan.pass().run(batch, plan.layers().isEmpty() ? AttentionTap.NONE : tap(slot));
    choose(slot);
    if (slot.maps != null && slot.hostMaps != null) {
      slot.hostMaps.copyFrom(slot.maps, slot.maps.elements(), 0);
    }
  }

  private AttentionTap tap(Slot slot) {
    return (Ops o, AttentionInput in, Tensor lse) -> {
      int layer = plan.layers().indexOf(in.layer());
      if (layer >= 0) {
        map(slot, in, lse, layer, Cells.PROBABILITIES);
        if (plan.scores()) {
          map(slot, in, lse, plan.layers().size() + layer, Cells.SCORES);
        }
      }
    };
  }

  private void map(Slot slot, AttentionInput in, Tensor lse, int layer, Cells cells) {
    AttentionMapKernels kernels = mapping;
    DeviceBuffer out = slot.maps;
    DeviceBuffer list = heads;
    if (kernels == null || out == null || list == null) {
      throw new IllegalStateException("no maps were planned");
    }
    long size = (long) plan.heads().size() * rows * plan.kv().capacity();
    kernels.map(
        kernels.mapVariant(rows, rows),
        new AttentionMapKernels.Source(
            ops.buffer(in.qkv()),
            ops.buffer(in.kv().keys(in.layer())),
            ops.buffer(lse),
            at.segments().buffer(),
            rows,
            true,
            in.scale()),
        new AttentionMapKernels.Selection(list, plan.heads().size(), 0, rows),
        cells,
        new AttentionMapKernels.Layout.Dense(plan.kv().capacity()),
        out.slice(layer * size, size));
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
    return result(sequence, 0);
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
  public void attention(int sequence, int layer, int head, boolean scores, float[] into, int keys) {
    long block = (scores ? (long) plan.layers().size() : 0) + layer;
    long row = (block * plan.heads().size() + head) * rows + sequence;
    copy(current().hostMaps, row * plan.kv().capacity(), into, keys);
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
