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
    int width = config.nEmbd();
    return new Activations(
        arena.allocate(rows, width),
        arena.activations(rows, width),
        arena.activations(rows, 3 * width),
        arena.activations(rows, width),
        arena.allocate(rows, config.nHead()),
        arena.activations(rows, config.nInner()));
  }

  /** Room for decoding steps of {@code rows} rows on a device: all in f32. */
  public static Activations forSteps(TensorArena arena, Gpt2Config config, int rows) {
    int width = config.nEmbd();
    return new Activations(
        arena.allocate(rows, width),
        arena.allocate(rows, width),
        arena.allocate(rows, 3 * width),
        arena.allocate(rows, width),
        arena.allocate(rows, config.nHead()),
        arena.allocate(rows, config.nInner()));
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
