package dev.loupe.model;

import dev.loupe.ops.AttentionHook;
import dev.loupe.ops.AttentionInput;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Linear;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Ops;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import org.jspecify.annotations.Nullable;

/**
 * One transformer block: attention, then an MLP, each after a layer norm and added to the residual
 * stream (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019).
 */
final class Block {
  private final BlockWeights w;
  private final int layer;
  private final float scale;
  private final Activation activation;

  Block(BlockWeights weights, Gpt2Config config, int layer) {
    this.w = weights;
    this.layer = layer;
    this.scale = config.attentionScale(layer);
    this.activation = config.activation();
  }

  /** The same, its heads cut as {@code config} says, with another c_proj unless it is null. */
  Block variant(Gpt2Config config, @Nullable Linear cProj) {
    BlockWeights weights =
        cProj == null
            ? w
            : new BlockWeights(w.ln1(), w.cAttn(), cProj, w.ln2(), w.cFc(), w.mlpCProj());
    return new Block(weights, config, layer);
  }

  /**
   * Runs the block over the rows of {@code batch}.
   *
   * @param a holds the residual stream x [R, C], updated in place, and room for what lies between
   * @param kv receives the rows' keys and values
   * @param hook sees the attention, and cannot change it
   */
  void forward(Ops ops, Activations a, Batch batch, KvCache kv, Mask mask, AttentionHook hook) {
    ops.layerNorm(a.x(), w.ln1(), a.h()); // [R, C]
    AttentionInput in = a.input(batch, kv, layer, scale, mask);
    ops.qkv(a.h(), w.cAttn(), in); // [R, 3C]  fused Q, K, V; K and V to the cache
    ops.attention(in, a.y(), a.lse()); // [R, C], log-sum-exp [R, H]
    hook.observe(ops, in, a.lse()); // the branch; AttentionHook.NONE does nothing
    ops.linearResidual(a.y(), w.cProj(), a.x()); // x += y . W + b
    ops.layerNorm(a.x(), w.ln2(), a.h()); // [R, C]
    ops.linear(a.h(), w.cFc(), activation, a.inner()); // [R, n_inner]
    ops.linearResidual(a.inner(), w.mlpCProj(), a.x()); // x += inner . W + b
  }
}
