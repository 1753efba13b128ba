package dev.loupe.corpus;

import dev.loupe.corpus.CorpusReport.Corpus;
import dev.loupe.corpus.CorpusReport.Document;
import dev.loupe.corpus.CorpusReport.Perplexity;
import java.io.Serializable;
import java.util.Optional;

/** All documents of a corpus, which may come in any order, and in parts. */
public final class CorpusSummary implements Serializable {
  private static final long serialVersionUID = 1;
  private static final int EXTREMES = 10;

  private long documents;
  private long windows;
  private long failedWindows;
  private long tokens;
  private long predicted;
  private final ExactSum logProb = new ExactSum();
  private final Summary perplexities = new Summary();
  private final Extremes<Document> lowest =
      new Extremes<>(EXTREMES, (a, b) -> compare(a.perplexity(), b.perplexity(), a, b));
  private final Extremes<Document> highest =
      new Extremes<>(EXTREMES, (a, b) -> compare(b.perplexity(), a.perplexity(), a, b));

  /** Of no documents yet. */
  public CorpusSummary() {}

  private static int compare(double x, double y, Document a, Document b) {
    int byPerplexity = Double.compare(x, y);
    return byPerplexity != 0 ? byPerplexity : a.docId().compareTo(b.docId());
  }

  /**
   * Adds a document.
   *
   * @param windows all its windows
   * @param failedWindows those of them that could not be read
   * @param tokens of the windows that were read
   * @param predicted tokens that {@code logProb} is the sum of ln p of; 0 if it has none
   */
  public void add(
      String docId, long windows, long failedWindows, long tokens, long predicted, double logProb) {
    documents++;
    this.windows += windows;
    this.failedWindows += failedWindows;
    this.tokens += tokens;
    if (predicted == 0) {
      return;
    }
    this.predicted += predicted;
    this.logProb.add(logProb);
    double perplexity = Math.exp(-logProb / predicted);
    if (Double.isFinite(perplexity)) { // a p of e^-709 for every token is possible, if silly
      Document document = new Document(docId, windows, tokens, perplexity);
      perplexities.add(perplexity);
      lowest.add(document);
      highest.add(document);
    }
  }

  /** Adds what another has; returns this. */
  public CorpusSummary merge(CorpusSummary other) {
    documents += other.documents;
    windows += other.windows;
    failedWindows += other.failedWindows;
    tokens += other.tokens;
    predicted += other.predicted;
    logProb.add(other.logProb);
    perplexities.merge(other.perplexities);
    lowest.merge(other.lowest);
    highest.merge(other.highest);
    return this;
  }

  /** What it came to. */
  public Corpus corpus() {
    Optional<Perplexity> perplexity =
        perplexities.isEmpty()
            ? Optional.empty()
            : Optional.of(
                new Perplexity(
                    Math.exp(-logProb.value().doubleValue() / predicted),
                    predicted,
                    perplexities.distribution(),
                    highest.list(),
                    lowest.list()));
    return new Corpus(documents, windows, failedWindows, tokens, perplexity);
  }
}
