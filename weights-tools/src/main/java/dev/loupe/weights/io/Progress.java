package dev.loupe.weights.io;

/** Hears how far a long piece of work has come. */
@FunctionalInterface
public interface Progress {
  /** Hears nothing. */
  Progress NONE = (done, total) -> {};

  /**
   * Called now and then by the thread that works.
   *
   * @param done units of work behind it, usually bytes
   * @param total units of work in all
   */
  void report(long done, long total);
}
