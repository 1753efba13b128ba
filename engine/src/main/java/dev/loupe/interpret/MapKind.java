package dev.loupe.interpret;

/** What a map of a text shows; each row of any kind sums to 1. */
public enum MapKind {
  /** Attention: the softmax of a head's scores. */
  WEIGHTS,

  /**
   * What a head writes for each key: |P[i, j] v[j] W_O| over its sum over j (Kobayashi et al.,
   * "Attention is Not Only a Weight", 2020; see {@link dev.loupe.attention.ValueNorms}). A factor
   * on the head cancels, so scaling a head does not change its map.
   */
  VALUE_WEIGHTED,

  /**
   * Attention rollout up to and with a layer, one map for all of its heads: R_l = (A_l / 2 + I / 2)
   * R_(l-1), A_l the mean of the layer's heads (Abnar and Zuidema, "Quantifying Attention Flow in
   * Transformers", 2020; see {@link dev.loupe.attention.AttentionRollout}).
   */
  ROLLOUT
}
