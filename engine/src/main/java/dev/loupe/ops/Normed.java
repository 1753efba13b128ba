package dev.loupe.ops;

/**
 * Rows that are normalised before a product multiplies them.
 *
 * @param x [rows, C]
 * @param norm by which layer norm
 * @param room [rows, C] of activations: a backend may put the normalised rows there; undefined
 *     afterwards
 */
public record Normed(Tensor x, LayerNorm norm, Tensor room) {}
