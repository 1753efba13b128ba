package dev.loupe.model;

import dev.loupe.ops.LayerNorm;
import dev.loupe.ops.Linear;
import dev.loupe.ops.TensorArena;
import dev.loupe.weights.Checkpoint;

/** The weights of one block under their names in the checkpoint. */
record BlockWeights(
    LayerNorm ln1, // h.N.ln_1
    Linear cAttn, // h.N.attn.c_attn.weight [C, 3C]: Q, K, V side by side
    Linear cProj, // h.N.attn.c_proj.weight [C, C]
    LayerNorm ln2, // h.N.ln_2
    Linear cFc, // h.N.mlp.c_fc.weight [C, n_inner]
    Linear mlpCProj) { // h.N.mlp.c_proj.weight [n_inner, C]

  static BlockWeights load(Checkpoint checkpoint, TensorArena arena, int layer) {
    String prefix = "h." + layer + ".";
    return new BlockWeights(
        layerNorm(checkpoint, arena, prefix + "ln_1"),
        linear(checkpoint, arena, prefix + "attn.c_attn"),
        linear(checkpoint, arena, prefix + "attn.c_proj"),
        layerNorm(checkpoint, arena, prefix + "ln_2"),
        linear(checkpoint, arena, prefix + "mlp.c_fc"),
        linear(checkpoint, arena, prefix + "mlp.c_proj"));
  }

  static LayerNorm layerNorm(Checkpoint checkpoint, TensorArena arena, String name) {
    return new LayerNorm(
        arena.vector(checkpoint.tensor(name + ".weight")),
        arena.vector(checkpoint.tensor(name + ".bias")),
        checkpoint.config().layerNormEpsilon());
  }

  private static Linear linear(Checkpoint checkpoint, TensorArena arena, String name) {
    return new Linear(
        arena.weight(checkpoint.tensor(name + ".weight")),
        arena.vector(checkpoint.tensor(name + ".bias")));
  }
}
