package dev.loupe.corpus;

import dev.loupe.corpus.CorpusReport.Score;
import dev.loupe.corpus.CorpusReport.Window;
import java.io.Serializable;

/** One score of one head over windows, which may come in any order, and in parts. */
public final class ScoreSummary implements Serializable {
  private static final long serialVersionUID = 1;
  private static final int OUTLIERS = 3;

  private final Summary values = new Summary();
  private final Extremes<Window> lowest =
      new Extremes<>(OUTLIERS, (a, b) -> compare(a.value(), b.value(), a, b));
  private final Extremes<Window> highest =
      new Extremes<>(OUTLIERS, (a, b) -> compare(b.value(), a.value(), a, b));

  /** Of no windows yet. */
  public ScoreSummary() {}

  private static int compare(double x, double y, Window a, Window b) {
    int byValue = Double.compare(x, y);
    int byDocument = byValue != 0 ? byValue : a.docId().compareTo(b.docId());
    return byDocument != 0 ? byDocument : Integer.compare(a.window(), b.window());
  }

  /** Adds a window, with its score, which is finite. */
  public void add(Window window) {
    values.add(window.value());
    lowest.add(window);
    highest.add(window);
  }

  /** Adds what another has; returns this. */
  public ScoreSummary merge(ScoreSummary other) {
    values.merge(other.values);
    lowest.merge(other.lowest);
    highest.merge(other.highest);
    return this;
  }

  /** What it came to, of one window or more. */
  public Score score() {
    return new Score(values.distribution(), lowest.list(), highest.list());
  }
}
