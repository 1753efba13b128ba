package dev.loupe.cuda.kernels;

/**
 * Rows of a pass that belong to one sequence: they stand together, at ascending positions.
 *
 * @param firstRow row of the pass that comes first
 * @param rows how many
 * @param sequence number of the sequence in the KV cache
 * @param firstPosition position of the first row in its sequence; the keys before it are in the
 *     cache already
 */
public record Segment(int firstRow, int rows, int sequence, int firstPosition) {
  public Segment {
    if (firstRow < 0 || rows < 1 || sequence < 0 || firstPosition < 0) {
      throw new IllegalArgumentException(
          "a segment of %d rows from row %d on, sequence %d, position %d: it needs a row, and no number below 0"
              .formatted(rows, firstRow, sequence, firstPosition));
    }
    if ((long) firstRow + rows > Integer.MAX_VALUE
        || (long) firstPosition + rows > Integer.MAX_VALUE) {
      throw new IllegalArgumentException(
          "a segment of %d rows from row %d and position %d on: more than an int counts"
              .formatted(rows, firstRow, firstPosition));
    }
  }

  /** The row after the last. */
  public int endRow() {
    return firstRow + rows;
  }

  /** Keys of the sequence once these rows are in the cache. */
  public int keys() {
    return firstPosition + rows;
  }
}
