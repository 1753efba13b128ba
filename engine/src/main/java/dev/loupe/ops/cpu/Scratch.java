package dev.loupe.ops.cpu;

import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.Batch;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/** What one worker needs for itself while it runs an operation. */
final class Scratch {
  /** The worker's own loops, which have scratch too. */
  final InnerLoops loops;

  /** Scores, then weights, of one query against one tile of keys. */
  final float[] scores = new float[InnerLoops.KEYS];

  /** Of one row of attention: entropy, distance, and up to 16 keys with their weights. */
  final float[] statistics = new float[AttentionPlan.statisticsOf(AttentionPlan.MAX_TOP)];

  /** [tileRows, tileColumns] sums of a matrix product, and of a part of it. */
  final float[] tile;

  final float[] part;

  /** [STREAMS, tileColumns] sums of a product by one row. */
  final float[] sums;

  /** Running maximum and denominator of each row of a block. */
  final float[] max = new float[Batch.BLOCK_ROWS];

  final float[] denominator = new float[Batch.BLOCK_ROWS];

  /** Unnormalised output [BLOCK_ROWS, D]. */
  float[] output = new float[0];

  private MemorySegment panel = MemorySegment.NULL;
  private final Arena arena;

  Scratch(InnerLoops loops, Arena arena) {
    this.loops = loops;
    this.arena = arena;
    this.tile = new float[loops.tileRows() * loops.tileColumns()];
    this.part = new float[tile.length];
    this.sums = new float[InnerLoops.STREAMS * loops.tileColumns()];
  }

  /** At least {@code elements} f32 of memory, undefined; grows and is kept. */
  MemorySegment panel(long elements) {
    if (panel.byteSize() < 4 * elements) {
      panel = arena.allocate(4 * elements, 64);
    }
    return panel;
  }

  float[] output(int elements) {
    if (output.length < elements) {
      output = new float[elements];
    }
    return output;
  }
}
