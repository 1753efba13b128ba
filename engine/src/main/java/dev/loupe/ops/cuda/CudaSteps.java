package dev.loupe.ops.cuda;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.Graph;
import dev.loupe.cuda.HostBuffer;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.kernels.SampleKernels;
import dev.loupe.cuda.kernels.SampleOptions;
import dev.loupe.cuda.kernels.Segment;
import dev.loupe.cuda.kernels.StepKernels;
import dev.loupe.ops.AttentionHook;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.AttentionPlan.Kind;
import dev.loupe.ops.Batch;
import dev.loupe.ops.Pass;
import dev.loupe.ops.StepPlan;
import dev.loupe.ops.Steps;
import dev.loupe.sampling.Sampling;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
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
  private final StepPlan plan;
  private final CudaOps ops;
  private final Gpu gpu;
  private final CudaArena arena; // owns the graphs
  private final CudaSession session;
  private final StepRoom room;
  private final int rows;
  private final boolean graphs;
  private final int[] heads; // whose attention is wanted
  private final int[] options;
  private final Batch batch;
  private int position; // of the tokens that the next pass to be started reads
  private int started;
  private int taken;

  CudaSteps(CudaOps ops, CudaArena arena, StepPlan plan, boolean graphs) {
    this.ops = ops;
    this.gpu = ops.gpu();
    this.plan = plan;
    this.graphs = graphs;
    this.arena = arena;
    session = arena.session();
    room = arena.stepRoom(plan);
    rows = room.rows;
    options = options(plan.sampling()).words();
    batch = Batch.step(IntStream.range(0, rows).toArray());
    heads = plan.attention().stream().flatMap(a -> a.heads().stream()).mapToInt(h -> h).toArray();
    position = plan.kv().length(0) - 1; // the first result moves it on, without a pass
    room.begin(plan);
    place(new int[rows], plan.place());
  }

  /** How the rows of a layer's attention lie. */
  private CudaMaps.RowLayout rowsOf(AttentionPlan plan, Kind kind) {
    return new CudaMaps.RowLayout(
        kind, plan.dtype(kind), heads.length * rows, plan.columns(kind, this.plan.kv().capacity()));
  }

  private static SampleOptions options(Sampling s) {
    return new SampleOptions(
        (float) s.temperature(),
        s.topK(),
        s.topP(),
        s.minP(),
        (float) s.repetitionPenalty(),
        s.seed());
  }

  /** Tells the device which tokens come next and where. */
  private void place(int[] ids, int placeOfNext) {
    int lane = room.at.capacity();
    int[] values = new int[StepRoom.listInts(rows)];
    System.arraycopy(options, 0, values, StepRoom.LISTS * lane, options.length);
    List<Segment> segments = new ArrayList<>();
    for (int r = 0; r < rows; r++) {
      values[r] = ids[r];
      values[lane + r] = r;
      values[2 * lane + r] = position;
      values[3 * lane + r] = position + 1;
      values[4 * lane + r] = placeOfNext;
      values[5 * lane + r] = plan.firstSample() + r;
      segments.add(new Segment(r, 1, r, position));
    }
    room.at.all().upload(values);
    room.at.segments().set(segments);
  }

  @Override
  public void next() {
    if (taken == plan.limit()) {
      throw new IllegalStateException(
          "%d results were taken, no more were planned".formatted(taken));
    }
    gpu.run(
        () -> {
          while (started < Math.min(plan.limit(), taken + StepRoom.SLOTS)
              && (started == 0 || position < plan.positions())) {
            start();
          }
          if (taken == started) {
            throw new IllegalStateException("the context is full");
          }
          room.slots.get(taken % StepRoom.SLOTS).mark.await();
        });
    taken++;
  }

  private void start() {
    StepRoom.Slot slot = room.slots.get(started % StepRoom.SLOTS);
    if (started == 0) {
      spread();
      choose(slot);
    } else {
      for (int r = 0; r < rows; r++) {
        batch.set(r, 0, position); // the ids are on the device
      }
      session.hold(); // a recording could not wait for what was put on the stream before it
      if (!graphs || !room.warm) {
        step(slot);
        room.warm = true;
      } else if (slot.graph == null) {
        Graph graph = arena.own(gpu.record(() -> step(slot)));
        slot.graph = graph;
        graph.launch();
      } else {
        plan.kv().extend(batch);
        slot.graph.launch();
      }
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
  private void bringMaps(StepRoom.Slot slot) {
    DeviceBuffer maps = Objects.requireNonNull(slot.maps);
    HostBuffer host = Objects.requireNonNull(slot.hostMaps);
    slot.computed.set();
    session
        .maps()
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
      logits.slice((long) r * room.vocabulary, room.vocabulary).copyFrom(logits, room.vocabulary);
    }
  }

  private void step(StepRoom.Slot slot) {
    try (Pass pass = new CudaPass(ops, session, batch, plan.kv(), room.at)) {
      plan.step().run(pass, plan.attention().map(a -> hook(a, slot)).orElse(AttentionHook.NONE));
    }
    session.hold(); // choosing moves the positions on, by which maps are rebuilt
    choose(slot);
  }

  private AttentionHook hook(AttentionPlan wanted, StepRoom.Slot slot) {
    DeviceBuffer maps = Objects.requireNonNull(slot.maps);
    return attention -> {
      int layer = wanted.layers().indexOf(attention.layer());
      if (layer < 0) {
        return;
      }
      for (Kind kind : wanted.kept()) {
        CudaMaps.RowLayout block = rowsOf(wanted, kind);
        long start = StepRoom.blockStart(wanted, kind, layer, rows, plan.kv().capacity());
        DeviceBuffer out =
            maps.slice(start / Float.BYTES, Math.ceilDiv(block.bytes(), Float.BYTES));
        session.maps().rebuild(attention, room.at, heads, 0, rows, block, out);
      }
    };
  }

  /** From logits to ids, and on to the next position. */
  private void choose(StepRoom.Slot slot) {
    DeviceBuffer logits = ops.buffer(plan.logits());
    CudaSession.Rows at = room.at;
    room.sampler.sample(
        new SampleKernels.Logits(logits, rows, room.vocabulary),
        room.allowed,
        room.seen,
        room.samples,
        room.place,
        room.options,
        room.chosen);
    room.stepping.advance(
        room.chosen,
        new StepKernels.Rows(
            at.sequences(), at.positions(), room.place, at.keys(), at.segments().buffer()),
        room.result,
        rows);
    slot.result.copyFrom(room.result, (long) StepRoom.RESULT * rows, 0);
    if (slot.logits != null) {
      slot.logits.copyFrom(logits, (long) rows * room.vocabulary, 0);
    }
  }

  /** The slot of the result that was taken last. */
  private StepRoom.Slot current() {
    return room.slots.get((taken - 1) % StepRoom.SLOTS);
  }

  private int result(int sequence, int i) {
    return current()
        .result
        .memory()
        .getAtIndex(ValueLayout.JAVA_INT, (long) sequence * StepRoom.RESULT + i);
  }

  @Override
  public int id(int sequence) {
    int id = result(sequence, 0);
    int error = result(sequence, 1);
    if (error == SampleKernels.NO_ID) {
      throw new GpuException("the GPU chose no token, as if none were allowed");
    }
    if (error != 0 || !plan.allowed().get(id < 0 ? room.vocabulary : id)) {
      throw gpu.wrong(
          "the GPU computes wrongly: it chose token %d of %d with error %d"
              .formatted(id, room.vocabulary, error));
    }
    return id;
  }

  @Override
  public boolean isFinite(int sequence) {
    return result(sequence, 1) != SampleKernels.NOT_FINITE;
  }

  @Override
  public void logits(int sequence, float[] into) {
    copy(current().logits, (long) sequence * room.vocabulary, into, room.vocabulary);
  }

  @Override
  public void attention(Kind kind, int sequence, int layer, int head, float[] into, int count) {
    HostBuffer from = current().hostMaps;
    AttentionPlan wanted = plan.attention().orElse(null);
    if (from == null || wanted == null) {
      throw new IllegalStateException("it was not planned for");
    }
    long start = StepRoom.blockStart(wanted, kind, layer, rows, plan.kv().capacity());
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

  /** The steps that are ahead go on; whoever uses or frees their memory next waits for them. */
  @Override
  public void close() {}
}
