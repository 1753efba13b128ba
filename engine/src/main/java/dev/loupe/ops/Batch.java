package dev.loupe.ops;

import java.util.Arrays;
import java.util.List;

/**
 * The rows of one forward pass: row r is token {@code id(r)} at {@code position(r)} of {@code
 * sequence(r)}. A prompt is T rows of one sequence, a decoding step one row of each of S sequences,
 * and any mixture is allowed, as long as the rows of a sequence stand together with ascending,
 * gapless positions.
 */
public final class Batch {
  /**
   * Rows that share one visit of the keys; bounds the scratch of an attention tile. It has no
   * effect on results.
   */
  public static final int BLOCK_ROWS = 16;

  private final int[] ids;
  private final int[] sequences;
  private final int[] positions;
  private final int[] blocks; // first row of each block of rows, then the number of rows

  private Batch(int[] ids, int[] sequences, int[] positions) {
    this.ids = ids;
    this.sequences = sequences;
    this.positions = positions;
    this.blocks = blocks(sequences);
  }

  /** The tokens {@code ids} of one sequence, from {@code firstPosition} on. */
  public static Batch sequence(int sequence, int firstPosition, int... ids) {
    int[] sequences = new int[ids.length];
    int[] positions = new int[ids.length];
    for (int r = 0; r < ids.length; r++) {
      sequences[r] = sequence;
      positions[r] = firstPosition + r;
    }
    return new Batch(ids.clone(), sequences, positions);
  }

  /** Whole sequences, one after the other: {@code texts.get(s)} is sequence s. */
  public static Batch texts(List<int[]> texts) {
    int rows = texts.stream().mapToInt(text -> text.length).sum();
    int[] ids = new int[rows];
    int[] sequences = new int[rows];
    int[] positions = new int[rows];
    int r = 0;
    for (int s = 0; s < texts.size(); s++) {
      int[] text = texts.get(s);
      for (int t = 0; t < text.length; t++, r++) {
        ids[r] = text[t];
        sequences[r] = s;
        positions[r] = t;
      }
    }
    return new Batch(ids, sequences, positions);
  }

  /** One row for each of {@code sequences}; fill it with {@link #set} for every step. */
  public static Batch step(int... sequences) {
    return new Batch(new int[sequences.length], sequences.clone(), new int[sequences.length]);
  }

  /** Places a token in row {@code r}. Rows keep their sequence. */
  public void set(int r, int id, int position) {
    ids[r] = id;
    positions[r] = position;
  }

  /** Number of rows. */
  public int rows() {
    return ids.length;
  }

  public int id(int r) {
    return ids[r];
  }

  public int sequence(int r) {
    return sequences[r];
  }

  public int position(int r) {
    return positions[r];
  }

  /** Number of blocks of consecutive rows of one sequence. */
  public int blocks() {
    return blocks.length - 1;
  }

  /** First row of block {@code b}; that of block {@link #blocks()} is the number of rows. */
  public int blockStart(int b) {
    return blocks[b];
  }

  private static int[] blocks(int[] sequences) {
    int[] starts = new int[sequences.length + 1];
    int n = 0;
    for (int r = 0; r < sequences.length; r++) {
      boolean begins =
          r == 0 || sequences[r] != sequences[r - 1] || r - starts[n - 1] == BLOCK_ROWS;
      if (begins) {
        starts[n++] = r;
      }
    }
    starts[n] = sequences.length;
    return Arrays.copyOf(starts, n + 1);
  }
}
