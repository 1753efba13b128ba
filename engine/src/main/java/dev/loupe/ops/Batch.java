package dev.loupe.ops;

import java.util.Arrays;
import java.util.List;

/**
 * The rows of one forward pass: row r is token {@code id(r)} at {@code position(r)} of {@code
 * sequence(r)}, and may want logits. A prompt is T rows of one sequence, a decoding step one row of
 * each of S sequences, and any mixture is allowed, as long as the rows of a sequence stand together
 * with ascending, gapless positions. A batch can be cleared and filled again.
 */
public final class Batch {
  /**
   * Rows that share one visit of the keys; bounds the scratch of an attention tile. It has no
   * effect on results.
   */
  public static final int BLOCK_ROWS = 16;

  private static final int LEAST_ROWS = 8;

  private int rows;
  private int[] ids = new int[LEAST_ROWS];
  private int[] positions = new int[LEAST_ROWS];
  private int[] sequences = new int[LEAST_ROWS];
  private boolean[] wanted = new boolean[LEAST_ROWS];
  private int wantedRows;
  private int blocks;
  private int[] starts = new int[LEAST_ROWS + 1]; // first row of each block, then the rows

  /** The tokens {@code ids} of one sequence, from {@code firstPosition} on, without logits. */
  public static Batch sequence(int sequence, int firstPosition, int... ids) {
    Batch batch = new Batch();
    for (int r = 0; r < ids.length; r++) {
      batch.add(ids[r], firstPosition + r, sequence, false);
    }
    return batch;
  }

  /** Whole sequences, one after the other, without logits: {@code texts.get(s)} is sequence s. */
  public static Batch texts(List<int[]> texts) {
    Batch batch = new Batch();
    for (int s = 0; s < texts.size(); s++) {
      int[] text = texts.get(s);
      for (int t = 0; t < text.length; t++) {
        batch.add(text[t], t, s, false);
      }
    }
    return batch;
  }

  /** One row for each of {@code sequences}; fill it with {@link #set} for every step. */
  public static Batch step(int... sequences) {
    Batch batch = new Batch();
    for (int sequence : sequences) {
      batch.add(0, 0, sequence, false);
    }
    return batch;
  }

  /** Takes all rows out. */
  public void clear() {
    rows = 0;
    wantedRows = 0;
    blocks = 0;
    starts[0] = 0;
  }

  /**
   * Adds a row.
   *
   * @param id of its token
   * @param position of the token in its sequence, from 0
   * @param sequence of the KV cache
   * @param wantLogits whether the logits after this token are wanted
   */
  public void add(int id, int position, int sequence, boolean wantLogits) {
    if (rows == ids.length) {
      grow();
    }
    boolean begins =
        rows == 0 || sequence != sequences[rows - 1] || rows - starts[blocks - 1] == BLOCK_ROWS;
    if (begins) {
      starts[blocks++] = rows;
    }
    ids[rows] = id;
    positions[rows] = position;
    sequences[rows] = sequence;
    wanted[rows] = wantLogits;
    wantedRows += wantLogits ? 1 : 0;
    starts[blocks] = ++rows;
  }

  private void grow() {
    int more = 2 * ids.length;
    ids = Arrays.copyOf(ids, more);
    positions = Arrays.copyOf(positions, more);
    sequences = Arrays.copyOf(sequences, more);
    wanted = Arrays.copyOf(wanted, more);
    starts = Arrays.copyOf(starts, more + 1);
  }

  /** Places a token in row {@code r}. Rows keep their sequence. */
  public void set(int r, int id, int position) {
    ids[r] = id;
    positions[r] = position;
  }

  /** Number of rows. */
  public int rows() {
    return rows;
  }

  /** Token id of row {@code r}, 0 to V - 1. */
  public int id(int r) {
    return ids[r];
  }

  /** Sequence of row {@code r}, from 0: which part of the KV cache it reads and writes. */
  public int sequence(int r) {
    return sequences[r];
  }

  /** Position of row {@code r} in its sequence, from 0. */
  public int position(int r) {
    return positions[r];
  }

  /** Whether the logits after row {@code r} are wanted. */
  public boolean wantsLogits(int r) {
    return wanted[r];
  }

  /** Number of rows whose logits are wanted. */
  public int wantedRows() {
    return wantedRows;
  }

  /** Number of blocks of consecutive rows of one sequence. */
  public int blocks() {
    return blocks;
  }

  /** First row of block {@code b}; that of block {@link #blocks()} is the number of rows. */
  public int blockStart(int b) {
    return starts[b];
  }
}
