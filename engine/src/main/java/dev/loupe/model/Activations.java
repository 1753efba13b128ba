package dev.loupe.model;

import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.weights.Gpt2Config;

/**
 * What a forward pass of R rows writes on its way; allocated once per session and used again by
 * every layer and every pass.
 *
 * @param x residual stream [R, C]
 * @param h its layer norm [R, C]
 * @param qkv queries, keys and values [R, 3C]
 * @param y attention output [R, C]
 * @param lse log-sum-exp of each row and head [R, H]
 * @param inner hidden layer of the MLP [R, n_inner]
 */
public record Activations(Tensor x, Tensor h, Tensor qkv, Tensor y, Tensor lse, Tensor inner) {
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
}
