package dev.loupe.ops.cuda;

import dev.loupe.cuda.CudaEvent;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.Graph;
import dev.loupe.cuda.HostBuffer;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.kernels.SampleKernels;
import dev.loupe.cuda.kernels.SampleOptions;
import dev.loupe.cuda.kernels.Segments;
import dev.loupe.cuda.kernels.StepKernels;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.AttentionPlan.Kind;
import dev.loupe.ops.StepPlan;
import dev.loupe.ops.Steps;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * What decoding steps of one cache need: lists of their rows, what sampling reads, a few slots for
 * their results, and the graphs of steps of so many rows.
 *
 * <p>Whatever one sequence has and another has not, its sampling options, seen ids, seed and
 * position, lies in device memory, which a graph reads when it is replayed. So a graph serves
 * whichever sequences take part, and those that one session recorded serve the next one that lies
 * in the same memory.
 */
final class StepRoom {
  /** Slots, and so how many steps the device may be ahead. */
  static final int SLOTS = 4;

  /** I32 that a step leaves of each sequence. */
  static final int RESULT = StepKernels.RESULT_INTS;

  /** Lists of an I32 for each row. */
  static final int LISTS = 9;

  /**
   * Plans of which one's graphs serve another.
   *
   * @param tensors where the session's tensors lie, in the order in which it asked for them
   */
  record Key(int rows, int vocabulary, Optional<AttentionPlan> attention, List<Long> tensors) {}

  static Key key(StepPlan plan, List<Long> tensors) {
    return new Key(
        plan.kv().sequences(), plan.logits().cols(), plan.attention(), List.copyOf(tensors));
  }

  /** Where the results of every {@link #SLOTS}th step go. */
  static final class Slot {
    @Nullable HostBuffer logits; // once they are wanted
    final @Nullable DeviceBuffer maps;
    final @Nullable HostBuffer hostMaps;
    final CudaEvent computed;
    final CudaEvent mark; // all of it is on the host

    private Slot(
        @Nullable DeviceBuffer maps,
        @Nullable HostBuffer hostMaps,
        CudaEvent computed,
        CudaEvent mark) {
      this.maps = maps;
      this.hostMaps = hostMaps;
      this.computed = computed;
      this.mark = mark;
    }
  }

  private final Gpu gpu;
  final int rows; // at most
  final int vocabulary;
  final SampleKernels sampler;
  final StepKernels stepping;
  final CudaSession.Rows at; // `all` has the lists, then the sampling options
  final DeviceBuffer place;
  final DeviceBuffer samples;
  final SampleKernels.Chosen chosen;
  final DeviceBuffer options;
  final DeviceBuffer allowed;
  final DeviceBuffer seen;
  final DeviceBuffer turn; // the slot that a row's next result goes to
  private final HostBuffer results; // [slots, rows that take part, RESULT], which a kernel writes
  final DeviceBuffer resultsOnDevice; // the same memory
  final List<Slot> slots = new ArrayList<>();
  private final BitSet warm = new BitSet(); // steps of so many rows have run
  private final Map<Integer, @Nullable Graph[]> graphs = new HashMap<>(); // by rows
  private @Nullable BitSet allowedNow;

  StepRoom(CudaOps ops, CudaArena arena, StepPlan plan) {
    gpu = ops.gpu();
    rows = plan.kv().sequences();
    vocabulary = plan.logits().cols();
    sampler = new SampleKernels(gpu);
    stepping = new StepKernels(gpu);
    int lane = Math.ceilDiv(rows, 4) * 4; // each list at a multiple of 16 bytes
    DeviceBuffer lists = arena.buffer(Element.I32, listInts(rows));
    at =
        new CudaSession.Rows(
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
    options = lists.slice((long) LISTS * lane, (long) rows * SampleOptions.INTS);
    allowed = arena.buffer(Element.I32, words());
    seen = arena.buffer(Element.I32, (long) rows * words());
    seen.fill((byte) 0); // the sampler adds to them whether they count or not
    turn = lists.slice(8L * lane, lane);
    results = arena.own(gpu.pin((long) SLOTS * RESULT * rows * Integer.BYTES));
    resultsOnDevice = results.onDevice(Element.I32);
    long mapBytes = plan.attention().map(a -> mapBytes(a, rows, plan.kv().capacity())).orElse(0L);
    for (int i = 0; i < SLOTS; i++) {
      slots.add(slot(arena, mapBytes));
    }
  }

  /** I32 of the lists and options of such steps. */
  static int listInts(int rows) {
    return LISTS * Math.ceilDiv(rows, 4) * 4 + rows * SampleOptions.INTS;
  }

  /**
   * Graphs of steps of so many rows, null where none was recorded: one, or one for each slot where
   * steps leave maps, which are copied while the next step runs.
   */
  @Nullable Graph[] graphs(int count) {
    int some = slots.getFirst().maps == null ? 1 : SLOTS;
    return graphs.computeIfAbsent(count, _ -> new Graph[some]);
  }

  /** Before a step, so that one which writes no result chooses no id. */
  void forget(int slot, int count) {
    for (long i = place(slot, count, 0); i < place(slot + 1, count, 0); i++) {
      results.memory().setAtIndex(ValueLayout.JAVA_INT, i, -1);
    }
  }

  /** One of the {@link #RESULT} numbers of a row of a step of {@code count} rows. */
  int result(int slot, int count, int row, int number) {
    return results.memory().getAtIndex(ValueLayout.JAVA_INT, place(slot, count, row) + number);
  }

  private static long place(int slot, int count, int row) {
    return ((long) slot * count + row) * RESULT;
  }

  /** Whether a step of so many rows has run, so that recording one allocates nothing. */
  boolean isWarm(int count) {
    return warm.get(count);
  }

  void warmed(int count) {
    warm.set(count);
  }

  private Slot slot(CudaArena arena, long mapBytes) {
    boolean maps = mapBytes > 0;
    return new Slot(
        maps ? arena.buffer(Element.F32, mapBytes / Float.BYTES) : null,
        maps ? arena.own(gpu.pin(mapBytes)) : null,
        arena.own(gpu.mark()),
        arena.own(gpu.mark()));
  }

  /** Where the logits of a slot's steps go on the host. */
  HostBuffer logits(CudaArena arena, Slot slot) {
    HostBuffer host = slot.logits;
    if (host == null) {
      host = arena.own(gpu.pin((long) rows * vocabulary * Float.BYTES));
      slot.logits = host;
    }
    return host;
  }

  /** Tells the device which ids may be chosen. */
  void allow(BitSet ids) {
    if (!ids.equals(allowedNow)) {
      allowed.upload(bits(List.of(ids)));
      allowedNow = (BitSet) ids.clone();
    }
  }

  /** Tells the device which ids each row has seen, if that makes a difference. */
  void see(List<Steps.Row> of) {
    if (of.stream().anyMatch(row -> row.sampling().repetitionPenalty() != 1)) {
      seen.upload(bits(of.stream().map(Steps.Row::seen).toList()));
    }
  }

  private int words() {
    return Math.ceilDiv(vocabulary, Integer.SIZE);
  }

  /** Bit sets over the vocabulary, one after the other. */
  private int[] bits(List<BitSet> sets) {
    int words = words();
    int[] values = new int[sets.size() * words];
    for (int i = 0; i < sets.size(); i++) {
      BitSet ids = sets.get(i);
      for (int id = ids.nextSetBit(0); id >= 0 && id < vocabulary; id = ids.nextSetBit(id + 1)) {
        values[i * words + id / Integer.SIZE] |= 1 << id % Integer.SIZE;
      }
    }
    return values;
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
  static long blockStart(AttentionPlan plan, Kind kind, int layer, int rows, int capacity) {
    long at = layer * blockBytes(plan, kind, rows, capacity);
    for (Kind before : plan.kept()) {
      if (before.compareTo(kind) < 0) {
        at += plan.layers().size() * blockBytes(plan, before, rows, capacity);
      }
    }
    return at;
  }
}
