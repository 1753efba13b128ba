package dev.loupe.ops;

/** Sees the attention of each layer as it happens. It can read everything and change nothing. */
@FunctionalInterface
public interface AttentionHook {
  /** Looks at nothing, at no cost. */
  AttentionHook NONE = attention -> {};

  /** Called after the attention of one layer, from which it can rebuild the maps. */
  void observe(Attention attention);
}
