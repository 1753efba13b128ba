package dev.loupe.ops;

/** Which keys a query may read. */
public enum Mask {
  /** Keys up to the query's own position, as GPT-2 was trained. */
  CAUSAL,
  /** All keys of the sequence, later ones too; for experiments. */
  FULL
}
