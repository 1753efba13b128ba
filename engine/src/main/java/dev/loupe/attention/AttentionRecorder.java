package dev.loupe.attention;

import dev.loupe.ops.AttentionInput;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.AttentionPlan.Kind;
import dev.loupe.ops.AttentionTap;
import dev.loupe.ops.Ops;
import dev.loupe.ops.Steps;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Collections;
import java.util.Deque;
import java.util.EnumMap;
import java.util.Map;
import java.util.Objects;
import java.util.Queue;

/**
 * Rebuilds the chosen attention rows after each layer and hands them on, a few rows at a time, so
 * that no T x T memory is held here. Where the backend has them come while it goes on, several
 * chunks of rows are under way; they arrive in order.
 */
public final class AttentionRecorder implements AttentionTap {
  private static final int CHUNK_BYTES = 4 << 20;

  /** Rows that are being rebuilt, into {@code to}, [heads rows, columns]. */
  private record Chunk(Ops ops, AttentionInput in, Kind kind, int first, int rows, Tensor to) {}

  private final AttentionPlan plan;
  private final int[] heads;
  private final Map<Kind, AttentionSink> sinks;
  // each of chunkBytes; the one that came back last first, so that a backend that keeps something
  // for each that it saw keeps no more than there are under way
  private final Deque<Tensor> free = new ArrayDeque<>();
  private final Queue<Chunk> pending = new ArrayDeque<>();
  private final long chunkBytes;
  private final float[] row;
  private int dropped;
  private int recorded;

  /**
   * @param keys most keys that a row of the model reads
   * @param tokens longest run to record
   * @param ahead how many chunks may be under way
   * @param scratchBytes what they are rebuilt in, at least one row of all heads for each
   * @param sinks where the rows of each kind go
   */
  public AttentionRecorder(
      TensorArena arena,
      AttentionPlan plan,
      int keys,
      int tokens,
      int ahead,
      long scratchBytes,
      Map<Kind, AttentionSink> sinks) {
    this.plan = plan;
    this.heads = plan.heads().stream().mapToInt(h -> h).toArray();
    this.sinks = new EnumMap<>(sinks);
    chunkBytes = scratchBytes / ahead;
    for (int i = 0; i < ahead; i++) {
      free.add(arena.allocate(1, Math.toIntExact(Math.ceilDiv(chunkBytes, Float.BYTES))));
    }
    row = new float[Math.max(tokens, AttentionPlan.statisticsOf(plan.top()))];
  }

  /** Rows begin at multiples of 16 elements, so that kernels can write them by vectors. */
  private static int rounded(int keys) {
    return Math.ceilDiv(keys, 16) * 16;
  }

  /** A good size of scratch: each chunk one row of all heads at least, and at most a prompt's. */
  public static long scratchBytes(AttentionPlan plan, int keys, int ahead) {
    long most = 0;
    for (Kind kind : plan.kept()) {
      long one = plan.bytes(kind, 1, rounded(keys));
      most = Math.max(most, Math.clamp(CHUNK_BYTES, one, one * keys));
    }
    return ahead * most;
  }

  /**
   * After the context slid: position 0 is now token {@code dropped} of the run, and the tokens
   * before {@code recorded} have their rows already, though they are read again.
   */
  public void slide(int dropped, int recorded) {
    this.dropped = dropped;
    this.recorded = recorded;
  }

  @Override
  public void observe(Ops ops, AttentionInput in, Tensor lse) {
    if (Collections.binarySearch(plan.layers(), in.layer()) < 0) {
      return;
    }
    for (Kind kind : plan.kept()) {
      for (int first = 0; first < in.batch().rows(); ) {
        int rows = rowsThatFit(in, kind, first);
        begin(ops, in, lse, kind, first, rows);
        first += rows;
      }
    }
  }

  private int rowsThatFit(AttentionInput in, Kind kind, int first) {
    int rows = 0;
    int keys = 0;
    while (first + rows < in.batch().rows()) {
      keys = Math.max(keys, in.keys(first + rows));
      if (rows > 0 && plan.bytes(kind, rows + 1, rounded(keys)) > chunkBytes) {
        break;
      }
      rows++;
    }
    return rows;
  }

  private void begin(Ops ops, AttentionInput in, Tensor lse, Kind kind, int first, int rows) {
    if (free.isEmpty()) {
      deliver(pending.remove());
    }
    int keys = 0;
    for (int r = first; r < first + rows; r++) {
      keys = Math.max(keys, in.keys(r));
    }
    Tensor room = free.remove();
    int columns = plan.columns(kind, rounded(keys));
    Tensor to = new Tensor(plan.dtype(kind), heads.length * rows, columns, room.data());
    pending.add(new Chunk(ops, in, kind, first, rows, to));
    switch (kind) {
      case PROBABILITIES -> ops.probabilities(in, lse, heads, first, rows, to);
      case SCORES -> ops.scores(in, heads, first, rows, to);
      case STATISTICS -> ops.statistics(in, lse, heads, first, rows, plan.top(), to);
    }
  }

  /** At the end of a pass: hands on what is still under way. */
  public void finish() {
    while (!pending.isEmpty()) {
      deliver(pending.remove());
    }
  }

  private void deliver(Chunk chunk) {
    AttentionInput in = chunk.in();
    for (int i = 0; i < heads.length * chunk.rows(); i++) {
      int r = chunk.first() + i % chunk.rows();
      int query = dropped + in.batch().position(r);
      if (query < recorded) {
        continue;
      }
      int keys = in.keys(r);
      chunk.ops().read(chunk.to(), i, row, plan.columns(chunk.kind(), keys));
      shift(chunk.kind(), keys);
      int head = heads[i / chunk.rows()];
      sink(chunk.kind()).row(in.batch().sequence(r), in.layer(), head, query, row);
    }
    Tensor to = chunk.to();
    free.addFirst(new Tensor(to.dtype(), 1, 0, to.data()));
  }

  private AttentionSink sink(Kind kind) {
    return Objects.requireNonNull(sinks.get(kind), "nobody asked for " + kind);
  }

  /** Moves the row to its place in the run: tokens that slid out were not read. */
  private void shift(Kind kind, int keys) {
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

  /** Takes what a decoding step on the device has left of the row at {@code position}. */
  public void observe(Steps steps, int sequence, int position) {
    for (Kind kind : plan.kept()) {
      AttentionSink sink = sink(kind);
      for (int l = 0; l < plan.layers().size(); l++) {
        for (int h = 0; h < heads.length; h++) {
          steps.attention(kind, sequence, l, h, row, plan.columns(kind, position + 1));
          shift(kind, position + 1);
          sink.row(sequence, plan.layers().get(l), heads[h], dropped + position, row);
        }
      }
    }
  }
}
