package dev.loupe.attention;

import dev.loupe.ops.AttentionInput;
import dev.loupe.ops.AttentionTap;
import dev.loupe.ops.Ops;
import dev.loupe.ops.Steps;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.weights.Gpt2Config;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/**
 * Rebuilds the chosen attention rows after each layer and hands them on, a few rows at a time, so
 * that no T x T memory is held here.
 */
public final class AttentionRecorder implements AttentionTap {
  private static final int SCRATCH_FLOATS = 1 << 20;

  private final int[] layers;
  private final int[] heads;
  private final AttentionSink probabilities;
  private final @Nullable AttentionSink scores;
  private final Tensor scratch; // [heads rows, keys]
  private final float[] row;
  private int dropped;
  private int recorded;

  /**
   * @param keys most keys that a row of the model reads
   * @param tokens longest run to record
   * @param scores where pre-softmax scores go, or null if nobody asked
   */
  public AttentionRecorder(
      TensorArena arena,
      Gpt2Config config,
      AttentionSelection selection,
      int keys,
      int tokens,
      AttentionSink probabilities,
      @Nullable AttentionSink scores) {
    this.layers = selection.layersOf(config);
    this.heads = selection.headsOf(config);
    this.probabilities = probabilities;
    this.scores = scores;
    int rows = scratchRows(heads.length, keys);
    this.scratch = arena.allocate(rows * heads.length, keys);
    this.row = new float[tokens];
  }

  private static int scratchRows(int heads, int keys) {
    return Math.clamp(SCRATCH_FLOATS / ((long) heads * keys), 1, keys);
  }

  /** Cells that the rows of a prompt are rebuilt in. */
  public static long scratchCells(int heads, int keys) {
    return (long) scratchRows(heads, keys) * heads * keys;
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
    if (Arrays.binarySearch(layers, in.layer()) < 0) {
      return;
    }
    int chunk = scratch.rows() / heads.length;
    for (int first = 0; first < in.batch().rows(); first += chunk) {
      int rows = Math.min(chunk, in.batch().rows() - first);
      ops.probabilities(in, lse, heads, first, rows, scratch);
      deliver(ops, in, first, rows, 0, probabilities);
      if (scores != null) {
        ops.scores(in, heads, first, rows, scratch);
        deliver(ops, in, first, rows, Float.NEGATIVE_INFINITY, scores);
      }
    }
  }

  private void deliver(
      Ops ops, AttentionInput in, int first, int rows, float unread, AttentionSink sink) {
    for (int i = 0; i < heads.length * rows; i++) {
      int r = first + i % rows;
      int query = dropped + in.batch().position(r);
      if (query < recorded) {
        continue;
      }
      ops.read(scratch, i, row, in.keys(r));
      shift(in.keys(r), unread);
      sink.row(in.batch().sequence(r), in.layer(), heads[i / rows], query, row);
    }
  }

  /** Moves the row to its place in the run: tokens that slid out were not read. */
  private void shift(int keys, float unread) {
    if (dropped > 0) {
      System.arraycopy(row, 0, row, dropped, keys);
      Arrays.fill(row, 0, dropped, unread);
    }
  }

  /** Takes what a decoding step on the device has left of the row at {@code position}. */
  public void observe(Steps steps, int sequence, int position) {
    for (int l = 0; l < layers.length; l++) {
      for (int h = 0; h < heads.length; h++) {
        steps.attention(sequence, l, h, false, row, position + 1);
        shift(position + 1, 0);
        probabilities.row(sequence, layers[l], heads[h], dropped + position, row);
        if (scores != null) {
          steps.attention(sequence, l, h, true, row, position + 1);
          shift(position + 1, Float.NEGATIVE_INFINITY);
          scores.row(sequence, layers[l], heads[h], dropped + position, row);
        }
      }
    }
  }

  /** The layers that are recorded, ascending. */
  public int[] layers() {
    return layers.clone();
  }

  /** The heads that are recorded. */
  public int[] heads() {
    return heads.clone();
  }
}
