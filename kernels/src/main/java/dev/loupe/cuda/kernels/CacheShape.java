package dev.loupe.cuda.kernels;

/**
 * Shape of the keys, or the values, of one layer's KV cache: [sequences, heads, capacity,
 * headSize], row-major.
 *
 * @param sequences sequences that it holds, S
 * @param heads heads of the layer, H
 * @param capacity positions kept of each sequence
 * @param headSize width of a head, D; a multiple of 8 up to 128
 */
public record CacheShape(int sequences, int heads, int capacity, int headSize) {
  private static final int MAX_HEAD_SIZE = 128;
  private static final int MAX_GRID = 65535;

  public CacheShape {
    if (sequences < 1 || heads < 1 || capacity < 1) {
      throw new IllegalArgumentException(
          "a KV cache of %d sequences, %d heads and %d positions: each must be 1 or more"
              .formatted(sequences, heads, capacity));
    }
    if (headSize < 8 || headSize > MAX_HEAD_SIZE || headSize % 8 != 0) {
      throw new IllegalArgumentException(
          "heads %d wide: the attention kernels take multiples of 8 from 8 to %d"
              .formatted(headSize, MAX_HEAD_SIZE));
    }
    if (heads > MAX_GRID || 3L * heads * headSize > Integer.MAX_VALUE) {
      throw new IllegalArgumentException(
          "%d heads of width %d: more than a kernel's grid or a row of qkv holds"
              .formatted(heads, headSize));
    }
  }

  /** Width of the residual stream, C = H D. */
  public int width() {
    return heads * headSize;
  }

  /** Elements of the keys, or of the values, of one layer. */
  public long elements() {
    return Math.multiplyExact((long) sequences * heads, (long) capacity * headSize);
  }
}
