package dev.loupe.interpret.trace;

/** Hears how far a trace has come, on the thread that measures. */
@FunctionalInterface
public interface TraceListener {
  /** Hears nothing. */
  TraceListener NONE = (phase, done, total) -> true;

  /** What is measured. */
  enum Phase {
    /** The effect of every part. */
    EFFECTS("effects"),
    /** The smallest set of parts. */
    SEARCH("search"),
    /** What its members read from each other. */
    EDGES("edges"),
    /** The cells of a {@link PatchGrid}. */
    GRID("grid");

    private final String label;

    Phase(String label) {
      this.label = label;
    }

    /** Its name in JSON. */
    public String label() {
      return label;
    }
  }

  /**
   * How far it has come; called at every layer of every pass.
   *
   * @param done rows of layers, see {@link TraceEffort}
   * @param total of the same, at most
   * @return false to end the trace, which then throws CancellationException
   */
  boolean tracing(Phase phase, long done, long total);
}
