package dev.loupe.attention;

import dev.loupe.ops.Attention;
import dev.loupe.ops.AttentionHook;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.AttentionPlan.Kind;
import dev.loupe.ops.Ops;
import dev.loupe.ops.RebuiltRows;
import dev.loupe.ops.Steps;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Collections;
import java.util.Deque;
import java.util.List;
import java.util.Queue;
import org.jspecify.annotations.Nullable;

/**
 * Rebuilds the chosen attention rows after each layer and hands them on, a few rows at a time, so
 * that no T x T memory is held here. Where the backend has them come while it goes on, several
 * chunks of rows are under way; they arrive in order.
 */
public final class AttentionRecorder implements AttentionHook {
  private static final int CHUNK_BYTES = 4 << 20;

  /** Rows that are being rebuilt, into {@code to}, [heads rows, columns]. */
  private record Chunk(
      Attention in, Kind kind, int first, int rows, Tensor to, RebuiltRows rebuilt) {}

  /** The sequences of a pass: where they stand in their texts, and what keeps their rows. */
  public interface Sequences {
    /** What keeps the rows of a sequence: one result, or several that read the same. */
    List<AttentionResult> results(int sequence);

    /** Tokens of the text that have slid out of the context: position 0 is the one after them. */
    default int dropped(int sequence) {
      return 0;
    }

    /**
     * Tokens at the start of the text that have their rows already, though they may be read again.
     */
    default int recorded(int sequence) {
      return 0;
    }
  }

  private final Ops ops;
  private final AttentionPlan plan;
  private final int[] heads;
  private final @Nullable ValueNorms norms;
  // each of chunkBytes; the one that came back last first, so that a backend that keeps something
  // for each that it saw keeps no more than there are under way
  private final Deque<Tensor> free = new ArrayDeque<>();
  private final Queue<Chunk> pending = new ArrayDeque<>();
  private final long chunkBytes;
  private final boolean together; // probabilities and statistics
  private final float[] row;
  private final Sequences sequences;

  /**
   * @param arena for what rows are rebuilt in
   * @param keys most keys that a row of the model reads
   * @param tokens longest run to record
   * @param scratchBytes what they are rebuilt in, at least one row of all heads for each
   * @param ops of the passes
   * @param norms those of the model's values; null where they are not wanted
   */
  public AttentionRecorder(
      Ops ops,
      TensorArena arena,
      AttentionPlan plan,
      int keys,
      int tokens,
      long scratchBytes,
      @Nullable ValueNorms norms,
      Sequences sequences) {
    this.ops = ops;
    this.plan = plan;
    this.sequences = sequences;
    this.heads = plan.heads().stream().mapToInt(h -> h).toArray();
    this.norms = norms;
    together = together(ops, plan);
    int chunks = chunks(ops, plan);
    chunkBytes = scratchBytes / chunks;
    for (int i = 0; i < chunks; i++) {
      free.add(arena.allocate(1, Math.toIntExact(Math.ceilDiv(chunkBytes, Float.BYTES))));
    }
    row = new float[Math.max(tokens, AttentionPlan.statisticsOf(plan.top()))];
  }

  /**
   * Whether q . k is computed once for probabilities and statistics. A backend that brings rows to
   * the host while it goes on has a kernel for each.
   */
  private static boolean together(Ops ops, AttentionPlan plan) {
    return ops.rebuildsAhead() == 1
        && plan.kept().contains(Kind.PROBABILITIES)
        && plan.kept().contains(Kind.STATISTICS);
  }

  /** How many chunks have room at a time. */
  private static int chunks(Ops ops, AttentionPlan plan) {
    return together(ops, plan) ? 2 : ops.rebuildsAhead();
  }

  /** Rows begin at multiples of 16 elements, so that kernels can write them by vectors. */
  private static int rounded(int keys) {
    return Math.ceilDiv(keys, 16) * 16;
  }

  /** A good size of scratch: each chunk one row of all heads at least, and at most a prompt's. */
  public static long scratchBytes(Ops ops, AttentionPlan plan, int keys) {
    long most = 0;
    for (Kind kind : plan.kept()) {
      long one = plan.bytes(kind, 1, rounded(keys));
      most = Math.max(most, Math.clamp(CHUNK_BYTES, one, one * keys));
    }
    return chunks(ops, plan) * most;
  }

  @Override
  public void observe(Attention in) {
    observe(in, 0, in.batch().rows());
  }

  /**
   * Sees some rows of a pass.
   *
   * @param from the first of them
   * @param count how many there are
   */
  public void observe(Attention in, int from, int count) {
    if (Collections.binarySearch(plan.layers(), in.layer()) < 0) {
      return;
    }
    if (norms != null) {
      norms.observe(ops, in, from, count, plan.heads(), this::keep);
    }
    for (Kind kind : plan.kept()) {
      if (together && kind == Kind.STATISTICS) {
        continue; // came with the probabilities
      }
      for (int first = from; first < from + count; ) {
        int rows = rowsThatFit(in, kind, first, from + count);
        begin(in, kind, first, rows);
        first += rows;
      }
    }
  }

  private int rowsThatFit(Attention in, Kind kind, int first, int end) {
    boolean both = together && kind == Kind.PROBABILITIES;
    int rows = 0;
    int keys = 0;
    while (first + rows < end) {
      keys = Math.max(keys, in.keys(first + rows));
      long bytes = plan.bytes(kind, rows + 1, rounded(keys));
      if (both) {
        bytes = Math.max(bytes, plan.bytes(Kind.STATISTICS, rows + 1, rounded(keys)));
      }
      if (rows > 0 && bytes > chunkBytes) {
        break;
      }
      rows++;
    }
    return rows;
  }

  private void begin(Attention in, Kind kind, int first, int rows) {
    int keys = 0;
    for (int r = first; r < first + rows; r++) {
      keys = Math.max(keys, in.keys(r));
    }
    Tensor to = room(kind, rows, keys);
    if (together && kind == Kind.PROBABILITIES) {
      Tensor spread = room(Kind.STATISTICS, rows, keys);
      List<RebuiltRows> both =
          in.probabilitiesAndStatistics(heads, first, rows, to, plan.top(), spread);
      pending.add(new Chunk(in, kind, first, rows, to, both.getFirst()));
      pending.add(new Chunk(in, Kind.STATISTICS, first, rows, spread, both.getLast()));
      return;
    }
    RebuiltRows rebuilt =
        switch (kind) {
          case PROBABILITIES -> in.probabilities(heads, first, rows, to);
          case SCORES -> in.scores(heads, first, rows, to);
          case STATISTICS -> in.statistics(heads, first, rows, plan.top(), to);
        };
    pending.add(new Chunk(in, kind, first, rows, to, rebuilt));
  }

  /** Room for some rows; where there is none, what was begun first is delivered. */
  private Tensor room(Kind kind, int rows, int keys) {
    if (free.isEmpty()) {
      deliver(pending.remove());
    }
    Tensor room = free.remove();
    int columns = plan.columns(kind, rounded(keys));
    return new Tensor(plan.dtype(kind), heads.length * rows, columns, room.data());
  }

  /** At the end of a pass: hands on what is still under way. */
  public void finish() {
    while (!pending.isEmpty()) {
      deliver(pending.remove());
    }
  }

  private void deliver(Chunk chunk) {
    Attention in = chunk.in();
    for (int i = 0; i < heads.length * chunk.rows(); i++) {
      int r = chunk.first() + i % chunk.rows();
      int sequence = in.batch().sequence(r);
      int dropped = sequences.dropped(sequence);
      int query = dropped + in.batch().position(r);
      if (query < sequences.recorded(sequence)) {
        continue;
      }
      int keys = in.keys(r);
      chunk.rebuilt().read(i, row, plan.columns(chunk.kind(), keys));
      shift(chunk.kind(), keys, dropped);
      int head = heads[i / chunk.rows()];
      keep(chunk.kind(), sequence, in.layer(), head, query);
    }
    Tensor to = chunk.to();
    free.addFirst(new Tensor(to.dtype(), 1, 0, to.data()));
  }

  /** Hands on {@link #row}. */
  private void keep(Kind kind, int sequence, int layer, int head, int query) {
    int dropped = sequences.dropped(sequence);
    for (AttentionResult result : sequences.results(sequence)) {
      result.put(kind, layer, head, dropped, query, row);
    }
  }

  private void keep(int sequence, int layer, int head, int position, float norm) {
    int dropped = sequences.dropped(sequence);
    for (AttentionResult result : sequences.results(sequence)) {
      result.value(layer, head, dropped + position, norm);
    }
  }

  /** Moves the row to its place in the run: tokens that slid out were not read. */
  private void shift(Kind kind, int keys, int dropped) {
    if (dropped == 0) {
      return;
    }
    if (kind == Kind.STATISTICS) {
      for (int i = 2; i < 2 + Math.min(plan.top(), keys); i++) {
        row[i] += dropped;
      }
    } else {
      System.arraycopy(row, 0, row, dropped, keys);
      Arrays.fill(row, 0, dropped, kind == Kind.SCORES ? Float.NEGATIVE_INFINITY : 0);
    }
  }

  /**
   * Takes what a decoding step on the device has left.
   *
   * @param stepRow which row of the step
   * @param position of the token that it read
   */
  public void observe(Steps steps, int stepRow, int sequence, int position) {
    int dropped = sequences.dropped(sequence);
    for (Kind kind : plan.kept()) {
      for (int l = 0; l < plan.layers().size(); l++) {
        for (int h = 0; h < heads.length; h++) {
          steps.attention(kind, stepRow, l, h, row, plan.columns(kind, position + 1));
          shift(kind, position + 1, dropped);
          keep(kind, sequence, plan.layers().get(l), heads[h], dropped + position);
        }
      }
    }
  }
}
