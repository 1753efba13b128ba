package dev.loupe.ops;

import java.util.List;

/**
 * The attention of one layer in a pass. First {@link #project} makes queries, keys and values, then
 * {@link #attend} makes of them the heads' outputs. After that, and as long as the pass is open and
 * nobody overwrites {@link #qkv} and {@link #lse}, rows of its maps are rebuilt.
 *
 * <p>Where another memory holds copies of all this (queries, the cache and log-sum-exp), a pass
 * over the copies rebuilds the same rows without the first two steps.
 */
public abstract class Attention {
  private final Pass pass;
  private final Batch batch;
  private final KvCache kv;
  private final boolean causal;
  private final int layer;
  private final float scale;
  private final Tensor qkv;
  private final Tensor lse;

  /** See {@link Pass#attention}. */
  protected Attention(Pass pass, int layer, float scale, Tensor qkv, Tensor lse) {
    this.pass = pass;
    batch = pass.batch();
    kv = pass.kv();
    causal = pass.mask() == Mask.CAUSAL;
    this.layer = layer;
    this.scale = scale;
    this.qkv = qkv;
    this.lse = lse;
    int width = 3 * kv.heads() * kv.headDim();
    if (qkv.rows() != batch.rows() || qkv.cols() != width) {
      throw new IllegalArgumentException(
          "qkv is %d x %d, the batch has %d rows and 3C is %d"
              .formatted(qkv.rows(), qkv.cols(), batch.rows(), width));
    }
    if (lse.rows() != batch.rows() || lse.cols() != kv.heads()) {
      throw new IllegalArgumentException(
          "log-sum-exp is %d x %d, the batch has %d rows and there are %d heads"
              .formatted(lse.rows(), lse.cols(), batch.rows(), kv.heads()));
    }
  }

  /** The pass that it is part of. */
  public final Pass pass() {
    return pass;
  }

  /** Which sequence and position each row is. */
  public final Batch batch() {
    return batch;
  }

  /** The keys and values so far, those of the rows included. */
  public final KvCache kv() {
    return kv;
  }

  /** Which layer of the cache. */
  public final int layer() {
    return layer;
  }

  /** Factor on q . k. */
  public final float scale() {
    return scale;
  }

  /** Queries, keys and values of the rows side by side, [R, 3C]. */
  public final Tensor qkv() {
    return qkv;
  }

  /** Log of the softmax's denominator of each row and head: log sum_j exp(scale q . k[j]). */
  public final Tensor lse() {
    return lse;
  }

  /** Whether a row reads no key after its own. */
  public final boolean isCausal() {
    return causal;
  }

  /** How many keys row {@code r} of the batch reads: keys 0 .. keys - 1 of its sequence. */
  public final int keys(int r) {
    return causal ? batch.position(r) + 1 : kv.length(batch.sequence(r));
  }

  /**
   * The fused projection c_attn: qkv = x . W + b, and the rows' keys and values go to the cache,
   * each at its position.
   *
   * @param x [R, C]
   */
  public abstract void project(Tensor x, Linear w);

  /** The same of rows that are normalised first. */
  public void project(Normed x, Linear w) {
    project(pass.apart(x), w);
  }

  /**
   * Attends with every head by one pass of online softmax over tiles of keys (Milakov and
   * Gimelshein, arXiv 1805.02867; Dao et al., FlashAttention, arXiv 2205.14135). No T x T memory.
   *
   * <p>y[r, h] = sum over keys j of softmax_j(scale q[r, h] . k[j, h]) v[j, h]; writes {@link
   * #lse}.
   *
   * @param y [R, C]
   */
  public abstract void attend(Tensor y);

  /**
   * Rebuilds rows of the attention matrix, which {@link #attend} does not keep: P[j] = exp(scale q
   * . k[j] - lse).
   *
   * @param heads which heads
   * @param firstRow first row of the batch
   * @param rows how many rows of the batch
   * @param out F32 or F16 [heads.length rows, at least as many columns as keys]: row i rows + r is
   *     head heads[i], batch row firstRow + r; columns beyond the keys that a row reads are
   *     undefined
   * @return the rows, on their way to the host; good until {@code out} is written again
   */
  public abstract RebuiltRows probabilities(int[] heads, int firstRow, int rows, Tensor out);

  /** Like {@link #probabilities}, but the scores before the softmax: scale q . k[j]. */
  public abstract RebuiltRows scores(int[] heads, int firstRow, int rows, Tensor out);

  /**
   * How rows of the attention matrix are spread. Written to {@code out}, of each row: its entropy
   * -sum p log p in nats; its mean distance sum p (position - key) in tokens; the {@code top} keys
   * with the largest p, the largest first and the lower key first among equals, as numbers, -1
   * where a row has fewer; and their p, 0 where there are fewer.
   *
   * @param top 1 to 16
   * @param out F32 [heads.length rows, 2 + 2 top]
   * @return the rows, on their way to the host; good until {@code out} is written again
   */
  public abstract RebuiltRows statistics(int[] heads, int firstRow, int rows, int top, Tensor out);

  /**
   * Rebuilds rows and says how they are spread: what {@link #probabilities} and {@link #statistics}
   * write, to the bit. Where the backend can, q . k is computed once for both.
   *
   * @param out of the probabilities
   * @param spread of the statistics
   * @return the probabilities, then the statistics
   */
  public List<RebuiltRows> probabilitiesAndStatistics(
      int[] heads, int firstRow, int rows, Tensor out, int top, Tensor spread) {
    return List.of(
        probabilities(heads, firstRow, rows, out), statistics(heads, firstRow, rows, top, spread));
  }

  /**
   * Checks that its pass goes on.
   *
   * @throws IllegalStateException if it was closed
   */
  protected final void requireOpen() {
    pass.requireOpen();
  }

  /**
   * Checks what is to be rebuilt.
   *
   * @throws IllegalArgumentException if the batch has no such rows, or {@code out} has no room
   */
  protected final void requireRows(int[] heads, int firstRow, int rows, Tensor out) {
    requireOpen();
    if (firstRow < 0 || rows < 0 || firstRow > batch.rows() - rows) {
      throw new IllegalArgumentException(
          "rows %d..%d of a batch of %d".formatted(firstRow, firstRow + rows - 1, batch.rows()));
    }
    if (out.rows() < heads.length * rows) {
      throw new IllegalArgumentException(
          "%d rows for %d heads of %d rows".formatted(out.rows(), heads.length, rows));
    }
  }

  /**
   * Likewise rows of a map.
   *
   * @throws IllegalArgumentException likewise, or if a row has more keys than {@code out} columns
   */
  protected final void requireMap(int[] heads, int firstRow, int rows, Tensor out) {
    requireRows(heads, firstRow, rows, out);
    for (int r = firstRow; r < firstRow + rows; r++) {
      if (out.cols() < keys(r)) {
        throw new IllegalArgumentException("%d columns for %d keys".formatted(out.cols(), keys(r)));
      }
    }
  }
}
