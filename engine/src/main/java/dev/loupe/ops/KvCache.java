package dev.loupe.ops;

import java.util.ArrayList;
import java.util.List;

/**
 * Keys and values of the tokens read so far, for S sequences of at most {@code capacity} positions.
 * Where a backend puts a cell inside a head's [capacity, D] is the backend's own matter.
 */
public final class KvCache {
  private final int heads;
  private final int headDim;
  private final int capacity;
  private final int[] lengths;
  private final List<Tensor> keys = new ArrayList<>(); // per layer [S H, capacity D]
  private final List<Tensor> values = new ArrayList<>();

  /**
   * An empty cache in {@code arena}.
   *
   * @param capacity positions per sequence; rounded up to a multiple of 64, the height of an
   *     attention tile
   */
  public KvCache(
      TensorArena arena, int layers, int heads, int headDim, int sequences, int capacity) {
    this.heads = heads;
    this.headDim = headDim;
    this.capacity = (capacity + 63) / 64 * 64;
    this.lengths = new int[sequences];
    int cells = Math.multiplyExact(this.capacity, headDim);
    for (int layer = 0; layer < layers; layer++) {
      keys.add(arena.activations(sequences * heads, cells));
      values.add(arena.activations(sequences * heads, cells));
    }
  }

  public int heads() {
    return heads;
  }

  /** Width of a head, D. */
  public int headDim() {
    return headDim;
  }

  /** Positions that a sequence has room for. */
  public int capacity() {
    return capacity;
  }

  /** Number of sequences, S. */
  public int sequences() {
    return lengths.length;
  }

  /** Positions of {@code sequence} that are filled, counting those of the pass under way. */
  public int length(int sequence) {
    return lengths[sequence];
  }

  /** Keys of {@code layer}, [S H, capacity D]. */
  public Tensor keys(int layer) {
    return keys.get(layer);
  }

  /** Values of {@code layer}, [S H, capacity D]. */
  public Tensor values(int layer) {
    return values.get(layer);
  }

  /**
   * Makes room for the rows of {@code batch}; their keys and values follow layer by layer.
   *
   * @throws IllegalArgumentException if a row does not follow the positions that are filled, or
   *     lies beyond the capacity
   */
  public void extend(Batch batch) {
    for (int r = 0; r < batch.rows(); r++) {
      int s = batch.sequence(r);
      int position = batch.position(r);
      if (position != lengths[s] || position >= capacity) {
        throw new IllegalArgumentException(
            "position %d of sequence %d: %d are filled, %d is the capacity"
                .formatted(position, s, lengths[s], capacity));
      }
      lengths[s]++;
    }
  }

  /** Forgets what {@code sequence} holds from {@code length} on. */
  public void truncate(int sequence, int length) {
    if (length < 0 || length > lengths[sequence]) {
      throw new IllegalArgumentException(
          "truncating %d positions to %d".formatted(lengths[sequence], length));
    }
    lengths[sequence] = length;
  }

  /** Makes sequence {@code to} a copy of sequence {@code from}. */
  public void copySequence(Ops ops, int from, int to) {
    for (int layer = 0; layer < keys.size(); layer++) {
      for (Tensor t : List.of(keys(layer), values(layer))) {
        ops.copy(t.rows(from * heads, heads), t.rows(to * heads, heads));
      }
    }
    lengths[to] = lengths[from];
  }
}
