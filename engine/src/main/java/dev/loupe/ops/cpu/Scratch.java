package dev.loupe.ops.cpu;

import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.Batch;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/** What one worker needs for itself while it runs an operation. */
final class Scratch {
  /** The worker's own loops, which have scratch too. */
  final InnerLoops loops;

  /** Bytes from one row of {@link #scores} to the next. */
  static final long SCORES = 4L * InnerLoops.KEYS;

  /** [tileRows, KEYS] scores, then weights, of some queries against one tile of keys. */
  final MemorySegment scores;

  /** One row of them on its way to another type. */
  final float[] row = new float[InnerLoops.KEYS];

  /** [tileRows] rows of statistics: entropy, distance, and up to 16 keys with their weights. */
  final float[][] statistics;

  /** [tileRows, 2, LANES] sums of entropy and distance, their lanes not yet added. */
  final MemorySegment spreads;

  /** [tileRows, tileColumns] sums of a matrix product, and of a part of it. */
  final MemorySegment tile;

  final MemorySegment part;

  /**
   * [FEW, STREAMS, tileColumns] sums of a product by a few rows; what those of others start from.
   */
  final MemorySegment sums;

  /** Running maximum of each row of a block. */
  final float[] max = new float[Batch.BLOCK_ROWS];

  /** What the output so far of each row of a tile is scaled by. */
  final float[] factors;

  /** Bytes of the lanes of one sum. */
  static final long LANES = 4L * InnerLoops.LANES;

  /** [BLOCK_ROWS, LANES] running denominator of each row, its lanes not yet added. */
  final MemorySegment denominators;

  /** [tileColumns] zeros. */
  final MemorySegment zeros;

  private final float[] lanes = new float[InnerLoops.LANES];

  private final Arena arena;
  private float[] embedding = new float[0];
  private MemorySegment output = MemorySegment.NULL;
  private MemorySegment panel = MemorySegment.NULL;

  Scratch(InnerLoops loops, Arena arena) {
    this.loops = loops;
    this.arena = arena;
    factors = new float[loops.tileRows()];
    statistics = new float[loops.tileRows()][AttentionPlan.statisticsOf(AttentionPlan.MAX_TOP)];
    long tileBytes = 4L * loops.tileRows() * loops.tileColumns();
    scores = arena.allocate(SCORES * loops.tileRows(), 64);
    tile = arena.allocate(tileBytes, 64);
    part = arena.allocate(tileBytes, 64);
    denominators = arena.allocate(LANES * Batch.BLOCK_ROWS, 64);
    spreads = arena.allocate(2 * LANES * loops.tileRows(), 64);
    zeros = arena.allocate(4L * loops.tileColumns(), 64);
    sums = arena.allocate(4L * CpuOps.FEW * InnerLoops.STREAMS * loops.tileColumns(), 64);
  }

  /** Sum {@code i} of those whose lanes stand in {@code all}. */
  float sum(MemorySegment all, int i) {
    MemorySegment.copy(all, ScalarLoops.F32, LANES * i, lanes, 0, lanes.length);
    return InnerLoops.fold(lanes, 0);
  }

  /** At least {@code elements} f32 of memory, undefined; grows and is kept. */
  MemorySegment panel(long elements) {
    if (panel.byteSize() < 4 * elements) {
      panel = arena.allocate(4 * elements, 64);
    }
    return panel;
  }

  /** Unnormalised output [BLOCK_ROWS, D]: at least {@code elements} f32, as {@link #panel}. */
  MemorySegment output(long elements) {
    if (output.byteSize() < 4 * elements) {
      output = arena.allocate(4 * elements, 64);
    }
    return output;
  }

  float[] embedding(int elements) {
    if (embedding.length < elements) {
      embedding = new float[elements];
    }
    return embedding;
  }
}
