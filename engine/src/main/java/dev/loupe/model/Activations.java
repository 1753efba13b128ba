package dev.loupe.model;

import dev.loupe.ops.AttentionInput;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.weights.config.Gpt2Config;
import org.jspecify.annotations.Nullable;

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
  // what each layer's attention worked on last; kept, so that a decoding step makes nothing new
  private final @Nullable AttentionInput[] inputs;

  private Activations(
      Tensor x, Tensor h, Tensor qkv, Tensor y, Tensor lse, Tensor inner, int layers) {
    this.x = x;
    this.h = h;
    this.qkv = qkv;
    this.y = y;
    this.lse = lse;
    this.inner = inner;
    inputs = new AttentionInput[layers];
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
        between.make(rows, config.nInner()),
        config.nLayer());
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
        inner.rows(0, rows),
        inputs.length);
  }

  /** What the attention of a layer works on in this pass. */
  AttentionInput input(Batch batch, KvCache kv, int layer, float scale, Mask mask) {
    AttentionInput last = inputs[layer];
    if (last == null || last.batch() != batch || last.kv() != kv || last.mask() != mask) {
      last = new AttentionInput(qkv, batch, kv, layer, scale, mask);
      inputs[layer] = last;
    }
    return last;
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
