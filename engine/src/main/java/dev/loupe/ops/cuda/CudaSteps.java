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
import org.jspecify.annotations.Nullable;

/**
 * Decoding without the host: the whole step, sampling included, is recorded as a CUDA graph and
 * replayed; the chosen ids stay on the device, which writes them to pinned memory of the host too;
 * what else the host wants of a step is copied there while the next ones run. A step's results rest
 * in one of a few slots until the host has taken them.
 *
 * <p>A sequence enters or leaves between steps, by a change of the lists on the device. There is a
 * graph for each number of rows, recorded at the second step that has so many.
 */
final class CudaSteps implements Steps {
  private final StepPlan plan;
  private final CudaOps ops;
  private final Gpu gpu;
  private final CudaArena arena; // owns the graphs
  private final CudaSession session;
  private final StepRoom room;
  private final boolean graphs;
  private final int[] heads; // whose attention is wanted
  private Batch batch = new Batch();
  private int rows; // that take part
  private boolean wantsLogits;
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
    heads = plan.attention().stream().flatMap(a -> a.heads().stream()).mapToInt(h -> h).toArray();
    room.allow(plan.allowed());
    gpu.run(() -> session.prepareSteps(plan.kv(), heads));
  }

  /** How the rows of a layer's attention lie. */
  private CudaMaps.RowLayout rowsOf(AttentionPlan plan, Kind kind) {
    return new CudaMaps.RowLayout(
        kind, plan.dtype(kind), heads.length * rows, plan.columns(kind, this.plan.kv().capacity()));
  }

  private static int[] options(Sampling s) {
    return new SampleOptions(
            (float) s.temperature(),
            s.topK(),
            s.topP(),
            s.minP(),
            (float) s.repetitionPenalty(),
            s.seed())
        .words();
  }

  @Override
  public void set(List<Row> rows, boolean wantsLogits) {
    if (underWay() > 0) {
      throw new IllegalStateException("%d steps are under way".formatted(underWay()));
    }
    if (rows.isEmpty() || rows.size() > room.rows) {
      throw new IllegalArgumentException(
          "%d sequences, not 1 to %d".formatted(rows.size(), room.rows));
    }
    this.rows = rows.size();
    this.wantsLogits = wantsLogits;
    batch = Batch.step(rows.stream().mapToInt(Row::sequence).toArray());
    int lane = room.at.capacity();
    int[] values = new int[StepRoom.listInts(room.rows)];
    List<Segment> segments = new ArrayList<>();
    for (int r = 0; r < rows.size(); r++) {
      Row row = rows.get(r);
      int position = plan.kv().length(row.sequence());
      values[r] = row.id();
      values[lane + r] = row.sequence();
      values[2 * lane + r] = position;
      values[3 * lane + r] = position + 1;
      values[4 * lane + r] = row.place();
      values[5 * lane + r] = row.sample();
      values[8 * lane + r] = started % StepRoom.SLOTS;
      System.arraycopy(
          options(row.sampling()),
          0,
          values,
          StepRoom.LISTS * lane + r * SampleOptions.INTS,
          SampleOptions.INTS);
      segments.add(new Segment(r, 1, row.sequence(), position));
    }
    room.at.all().upload(values);
    room.at.segments().set(segments);
    room.see(rows);
  }

  @Override
  public int underWay() {
    return started - taken;
  }

  @Override
  public void start(int many) {
    gpu.run(
        () -> {
          while (underWay() < Math.min(many, StepRoom.SLOTS)) {
            start();
          }
        });
  }

  @Override
  public void take() {
    if (underWay() == 0) {
      throw new IllegalStateException("no step is under way");
    }
    gpu.run(() -> room.slots.get(taken % StepRoom.SLOTS).mark.await());
    taken++;
  }

  private void start() {
    int number = started % StepRoom.SLOTS;
    StepRoom.Slot slot = room.slots.get(number);
    for (int r = 0; r < rows; r++) {
      batch.set(r, 0, plan.kv().length(batch.sequence(r))); // the ids are on the device
    }
    room.forget(number, rows);
    session.hold(); // a recording could not wait for what was put on the stream before it
    @Nullable Graph[] recorded = room.graphs(rows);
    int at = number % recorded.length;
    Graph graph = recorded[at];
    if (!graphs || !room.isWarm(rows)) {
      long before = gpu.launched();
      step(slot);
      ops.stepLaunched(gpu.launched() - before);
      room.warmed(rows);
    } else if (graph == null) {
      graph = arena.own(gpu.record(() -> step(slot)));
      recorded[at] = graph;
      graph.launch();
    } else {
      plan.kv().extend(batch);
      graph.launch();
    }
    if (wantsLogits) {
      long count = (long) rows * room.vocabulary;
      room.logits(arena, slot).copyFrom(ops.buffer(plan.logits()), count, 0);
    }
    if (slot.maps == null) {
      slot.mark.set();
    } else {
      bringMaps(slot);
    }
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

  private void step(StepRoom.Slot slot) {
    try (Pass pass = new CudaPass(ops, session, batch, plan.kv(), room.at)) {
      plan.step().run(pass, plan.attention().map(a -> hook(a, slot)).orElse(AttentionHook.NONE));
    }
    session.hold(); // choosing moves the positions on, by which maps are rebuilt
    choose();
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
  private void choose() {
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
            at.sequences(),
            at.positions(),
            room.place,
            at.keys(),
            at.segments().buffer(),
            room.turn),
        room.resultsOnDevice,
        StepRoom.SLOTS,
        rows);
  }

  /** The slot of the result that was taken last. */
  private StepRoom.Slot current() {
    return room.slots.get((taken - 1) % StepRoom.SLOTS);
  }

  private int result(int row, int i) {
    return room.result((taken - 1) % StepRoom.SLOTS, rows, row, i);
  }

  @Override
  public int id(int row) {
    int id = result(row, 0);
    int error = result(row, 1);
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
  public boolean isFinite(int row) {
    return result(row, 1) != SampleKernels.NOT_FINITE;
  }

  @Override
  public void logits(int row, float[] into) {
    HostBuffer from = current().logits;
    if (!wantsLogits || from == null) {
      throw new IllegalStateException("they were not wanted");
    }
    long first = (long) row * room.vocabulary * Float.BYTES;
    MemorySegment.copy(from.memory(), ValueLayout.JAVA_FLOAT, first, into, 0, room.vocabulary);
  }

  @Override
  public void attention(Kind kind, int row, int layer, int head, float[] into, int count) {
    HostBuffer from = current().hostMaps;
    AttentionPlan wanted = plan.attention().orElse(null);
    if (from == null || wanted == null) {
      throw new IllegalStateException("it was not planned for");
    }
    long start = StepRoom.blockStart(wanted, kind, layer, rows, plan.kv().capacity());
    rowsOf(wanted, kind).read(from.memory(), start, head * rows + row, into, count);
  }

  /** The steps that are ahead go on; whoever uses or frees their memory next waits for them. */
  @Override
  public void close() {}
}
