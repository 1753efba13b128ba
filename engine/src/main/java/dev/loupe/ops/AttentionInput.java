package dev.loupe.ops;

/**
 * What one attention of one layer works on.
 *
 * @param qkv [R, 3C]: the rows' q, k, v side by side, each H heads of D
 * @param batch which sequence and position each row is
 * @param kv the keys and values so far, those of the rows included
 * @param layer which layer of the cache
 * @param scale factor on q . k
 * @param mask which keys a row may read
 */
public record AttentionInput(
    Tensor qkv, Batch batch, KvCache kv, int layer, float scale, Mask mask) {
  public AttentionInput {
    int width = 3 * kv.heads() * kv.headDim();
    if (qkv.rows() != batch.rows() || qkv.cols() != width) {
      throw new IllegalArgumentException(
          "qkv is %d x %d, the batch has %d rows and 3C is %d"
              .formatted(qkv.rows(), qkv.cols(), batch.rows(), width));
    }
  }

  /** How many keys row {@code r} of the batch reads: keys 0 .. keys - 1 of its sequence. */
  public int keys(int r) {
    return mask == Mask.CAUSAL ? batch.position(r) + 1 : kv.length(batch.sequence(r));
  }
}
