package dev.loupe.generate;

/** Hears how far a text has been read, on the thread that reads it. */
@FunctionalInterface
public interface ReadListener {
  /** Hears nothing. */
  ReadListener NONE = (layersDone, layers) -> true;

  /**
   * How far reading the prompt has come.
   *
   * @return false to end the run, which then throws CancellationException
   */
  boolean reading(int layersDone, int layers);
}
