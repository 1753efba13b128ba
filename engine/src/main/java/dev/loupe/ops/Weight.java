package dev.loupe.ops;

/**
 * A matrix [in, out] of a checkpoint, as a backend keeps it to multiply by; how, is its own matter.
 */
public interface Weight {
  /** Elements of an input row. */
  int in();

  /** Elements of an output row. */
  int out();
}
