package dev.loupe.model;

import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.weights.config.Gpt2Config;

/**
 * What a forward pass of R rows writes on its way; allocated once per session and used again by
 * every layer and every pass.
 */
public final class Activations {
  private final Tensor x;
  private final Tensor h;
  private final Tensor qkv;
  private final Tensor y;
  private final Tensor lse;
  private final Tensor inner;

  private Activations(Tensor x, Tensor h, Tensor qkv, Tensor y, Tensor lse, Tensor inner) {
    this.x = x;
    this.h = h;
    this.qkv = qkv;
    this.y = y;
    this.lse = lse;
    this.inner = inner;
  }

  /** Room for passes of {@code rows} rows. */
  public static Activations allocate(TensorArena arena, Gpt2Config config, int rows) {
    return allocate(arena, config, rows, arena::activations);
  }

  /** Room for decoding steps of {@code rows} rows on a device: all in f32. */
  public static Activations forSteps(TensorArena arena, Gpt2Config config, int rows) {
    return allocate(arena, config, rows, arena::allocate);
  }

  private static Activations allocate(
      TensorArena arena, Gpt2Config config, int rows, Between between) {
    int width = config.nEmbd();
    return new Activations(
        arena.allocate(rows, width),
        between.make(rows, width),
        between.make(rows, 3 * width),
        between.make(rows, width),
        arena.allocate(rows, config.nHead()),
        between.make(rows, config.nInner()));
  }

  /** Makes what lies between the residual stream and the matrices. */
  private interface Between {
    Tensor make(int rows, int cols);
  }

  /** The same memory for passes of fewer rows. */
  public Activations rows(int rows) {
    return new Activations(
        x.rows(0, rows),
        h.rows(0, rows),
        qkv.rows(0, rows),
        y.rows(0, rows),
        lse.rows(0, rows),
        inner.rows(0, rows));
  }

  /** Residual stream [R, C]. */
  public Tensor x() {
    return x;
  }

  /** Its layer norm [R, C]. */
  public Tensor h() {
    return h;
  }

  /** Queries, keys and values [R, 3C]. */
  Tensor qkv() {
    return qkv;
  }

  /** Attention output [R, C], the heads side by side, before c_proj. */
  public Tensor y() {
    return y;
  }

  /** Log-sum-exp of each row and head [R, H]. */
  Tensor lse() {
    return lse;
  }

  /** Hidden layer of the MLP [R, n_inner]. */
  Tensor inner() {
    return inner;
  }
}
