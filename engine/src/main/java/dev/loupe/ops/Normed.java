package dev.loupe.ops;

/**
 * The layer norm of rows, as what a product multiplies.
 *
 * @param x [rows, C]
 * @param room [rows, C] of activations, where a backend may put the normalised rows before it
 *     multiplies them; undefined afterwards
 */
public record Normed(Tensor x, LayerNorm norm, Tensor room) {}
