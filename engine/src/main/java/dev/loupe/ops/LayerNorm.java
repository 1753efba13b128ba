package dev.loupe.ops;

/**
 * Layer normalisation over the last axis (Ba, Kiros and Hinton, arXiv 1607.06450).
 *
 * @param weight [1, C], f32
 * @param bias [1, C], f32
 * @param epsilon added to the variance
 */
public record LayerNorm(Tensor weight, Tensor bias, float epsilon) {}
