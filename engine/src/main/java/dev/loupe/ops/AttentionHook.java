package dev.loupe.ops;

/** Sees the attention of each layer as it happens. It can read everything and change nothing. */
@FunctionalInterface
public interface AttentionHook {
  /** Looks at nothing, at no cost. */
  AttentionHook NONE = (ops, in, lse) -> {};

  /**
   * Called after the attention of one layer.
   *
   * @param in its queries, keys and values
   * @param lse its log-sum-exp [R, H], from which {@link Ops#probabilities} rebuilds the maps
   */
  void observe(Ops ops, AttentionInput in, Tensor lse);
}
