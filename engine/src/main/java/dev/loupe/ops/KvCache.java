package dev.loupe.ops;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Keys and values of the tokens read so far, for S sequences of at most {@code capacity} positions.
 * Where a backend puts a cell inside a head's [capacity, D] is the backend's own matter.
 */
public final class KvCache {
  private final int heads;
  private final int headDim;
  private final int capacity;
  private final int[] lengths;
  private final List<Tensor> keys; // per layer [S H, capacity D]
  private final List<Tensor> values;
  private boolean inPass;
  private @Nullable Pass last; // that has ended

  /**
   * An empty cache in {@code arena}.
   *
   * @param capacity positions per sequence; {@link #rounded} up
   */
  public KvCache(
      TensorArena arena, int layers, int heads, int headDim, int sequences, int capacity) {
    this.heads = heads;
    this.headDim = headDim;
    this.capacity = rounded(capacity);
    this.lengths = new int[sequences];
    keys = new ArrayList<>();
    values = new ArrayList<>();
    int cells = Math.multiplyExact(this.capacity, headDim);
    for (int layer = 0; layer < layers; layer++) {
      keys.add(arena.activations(sequences * heads, cells));
      values.add(arena.activations(sequences * heads, cells));
    }
  }

  private KvCache(
      int heads, int headDim, int sequences, int capacity, List<Tensor> keys, List<Tensor> values) {
    this.heads = heads;
    this.headDim = headDim;
    this.capacity = capacity;
    this.lengths = new int[sequences];
    this.keys = keys;
    this.values = values;
  }

  /**
   * An empty cache for a pass that reads whole texts: a layer's keys and values are needed no
   * longer once its attention is done, so all layers write to the same memory.
   *
   * @param keys [at least sequences {@link #rounded}(capacity), H D]
   * @param values likewise
   * @throws IllegalArgumentException if they are too small
   */
  public static KvCache ofOnePass(
      Tensor keys, Tensor values, int layers, int heads, int sequences, int capacity) {
    int headDim = keys.cols() / heads;
    int most = rounded(capacity);
    int rows = Math.multiplyExact(sequences, most);
    if (rows > keys.rows() || rows > values.rows()) {
      throw new IllegalArgumentException(
          "%d sequences of %d positions in a cache of %d"
              .formatted(sequences, most, Math.min(keys.rows(), values.rows())));
    }
    return new KvCache(
        heads,
        headDim,
        sequences,
        most,
        Collections.nCopies(layers, byHead(keys.rows(0, rows), sequences * heads)),
        Collections.nCopies(layers, byHead(values.rows(0, rows), sequences * heads)));
  }

  private static Tensor byHead(Tensor cells, int rows) {
    int cols = Math.toIntExact((long) cells.rows() * cells.cols() / rows);
    return new Tensor(cells.dtype(), rows, cols, cells.data());
  }

  /** What a capacity is rounded up to: a multiple of 64, the height of an attention tile. */
  public static int rounded(int capacity) {
    return (capacity + 63) / 64 * 64;
  }

  public int heads() {
    return heads;
  }

  /** Width of a head, D. */
  public int headDim() {
    return headDim;
  }

  /** Number of layers. */
  public int layers() {
    return keys.size();
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
   *     lies beyond the capacity; then nothing changes
   */
  public void extend(Batch batch) {
    for (int r = 0; r < batch.rows(); r++) {
      int s = batch.sequence(r);
      int position = batch.position(r);
      if (position != lengths[s] || position >= capacity) {
        String refused =
            "position %d of sequence %d: %d are filled, %d is the capacity"
                .formatted(position, s, lengths[s], capacity);
        for (int before = 0; before < r; before++) {
          lengths[batch.sequence(before)]--;
        }
        throw new IllegalArgumentException(refused);
      }
      lengths[s]++;
    }
  }

  /** Begins a pass, and makes room for its rows. */
  void enter(Batch batch) {
    if (inPass) {
      throw new IllegalStateException("the last pass over this cache is still open");
    }
    extend(batch);
    inPass = true;
  }

  /** Ends it. */
  void leave(Pass pass) {
    inPass = false;
    last = pass;
  }

  /** The last pass that has ended, for a backend to begin again; null if there was none. */
  public @Nullable Pass lastPass() {
    return last;
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
