package dev.loupe.ops;

import dev.loupe.weights.config.Activation;

/**
 * One forward pass over the rows of a batch: the operations of the model, and what a backend knows
 * of the rows while they go through the layers. Made by {@link Ops#begin}, used by one thread, and
 * closed before the next pass over its cache begins; an operation of a closed pass throws {@link
 * IllegalStateException}.
 *
 * <p>Letters: R rows of the pass, C width, H heads, D = C / H, V vocabulary. Matrices are [rows,
 * cols] row-major; sums are always f32. The residual stream, logits and attention maps are f32;
 * what lies between them is as {@link TensorArena#activations} makes it. On the CPU a row's result
 * depends on that row's own inputs alone, never on the rows beside it, the number of threads or the
 * size of the batch, so a prompt read at once and a prompt read token by token give the same bits.
 * Callers pass matching shapes; a backend checks them before native code or unchecked memory could
 * see them.
 */
public abstract class Pass implements AutoCloseable {
  private final Batch batch;
  private final KvCache kv;
  private final Mask mask;
  private boolean open = true;

  /**
   * Makes room in the cache for the rows.
   *
   * @throws IllegalArgumentException if a row does not follow the positions that are filled, or
   *     lies beyond the capacity
   * @throws IllegalStateException if another pass over the cache is open
   */
  protected Pass(Batch batch, KvCache kv, Mask mask) {
    this.batch = batch;
    this.kv = kv;
    this.mask = mask;
    kv.enter(batch);
  }

  /** Begins a pass that has ended once more, over what its batch holds now. */
  protected final void beginAgain() {
    kv.enter(batch);
    open = true;
  }

  /** Which token each row is. */
  public final Batch batch() {
    return batch;
  }

  /** The keys and values so far, those of the rows included. */
  public final KvCache kv() {
    return kv;
  }

  /** Which keys a row may read. */
  public final Mask mask() {
    return mask;
  }

  /** x[r] = wte[id(r)] + wpe[position(r)]; wte [V, C], wpe [positions, C], x [R, C]. */
  public abstract void embed(Tensor wte, Tensor wpe, Tensor x);

  /** out[r] = (x[r] - mean) / sqrt(variance + epsilon) * weight + bias; x and out [rows, C]. */
  public abstract void layerNorm(Tensor x, LayerNorm norm, Tensor out);

  /** out = f(x . W + b), f element by element; x [rows, in], out [rows, out]. */
  public abstract void linear(Tensor x, Linear w, Activation f, Tensor out);

  /**
   * The same of rows that are normalised first. A backend may do both in one step; the bits are
   * those of two steps.
   */
  public void linear(Normed x, Linear w, Activation f, Tensor out) {
    linear(apart(x), w, f, out);
  }

  /** acc += x . W + b; x [rows, in], acc [rows, out]. */
  public abstract void linearResidual(Tensor x, Linear w, Tensor acc);

  /** out[r, v] = x[r] . head[v]; x [rows, C], head of C to V, out [rows, V]. */
  public abstract void logits(Tensor x, Weight head, Tensor out);

  /** The same of rows that are normalised first. */
  public void logits(Normed x, Weight head, Tensor out) {
    logits(apart(x), head, out);
  }

  /** Normalises in a step of its own. */
  protected final Tensor apart(Normed x) {
    layerNorm(x.x(), x.norm(), x.room());
    return x.room();
  }

  /**
   * The attention of a layer; nothing is computed yet.
   *
   * @param layer of the cache
   * @param scale factor on q . k
   * @param qkv [R, 3C]: the rows' q, k, v side by side, each H heads of D
   * @param lse [R, H]: the log-sum-exp of each row
   * @throws IllegalArgumentException if the shapes do not fit
   */
  public abstract Attention attention(int layer, float scale, Tensor qkv, Tensor lse);

  /**
   * Checks that the pass goes on.
   *
   * @throws IllegalStateException if it was closed
   */
  protected final void requireOpen() {
    if (!open) {
      throw new IllegalStateException("the pass has ended");
    }
  }

  /** Ends the pass, and all that was made of it. */
  @Override
  public final void close() {
    if (open) {
      open = false;
      kv.leave(this);
    }
  }
}
