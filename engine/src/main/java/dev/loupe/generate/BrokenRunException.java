package dev.loupe.generate;

import java.util.List;

/** The GPU failed while tokens were being written; what was made so far is here. */
public final class BrokenRunException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private final transient List<Generation> runs;

  BrokenRunException(List<Generation> runs, RuntimeException cause) {
    super(cause.getMessage(), cause);
    this.runs = List.copyOf(runs);
  }

  /**
   * One run for each sample, as far as it came. Those that were still being written have {@link
   * Generation.Finish#ERROR}; their maps lack the row of the last token, which is all zero.
   */
  public List<Generation> runs() {
    return runs;
  }
}
