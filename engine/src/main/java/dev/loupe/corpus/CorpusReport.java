package dev.loupe.corpus;

import dev.loupe.attention.HeadScore;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.EnumMap;
import java.util.EnumSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/**
 * What each head of a model does over a corpus, and how well the model predicts its documents.
 *
 * @param facts what it was made of, e.g. the model and its SHA-256, in order: strings, numbers,
 *     booleans
 * @param failures errors of windows, those of most windows first; not all, if there are many
 * @param heads by layer and head; none if no statistics were asked for
 */
public record CorpusReport(
    Map<String, Object> facts, Corpus corpus, List<Failure> failures, List<Head> heads) {

  public CorpusReport {
    facts = Collections.unmodifiableMap(new LinkedHashMap<>(facts));
    failures = List.copyOf(failures);
    List<Head> sorted = new ArrayList<>(heads);
    sorted.sort(Comparator.comparingInt(Head::layer).thenComparingInt(Head::head));
    heads = List.copyOf(sorted);
  }

  /**
   * What was read.
   *
   * @param tokens of the windows that could be read
   * @param perplexity empty if no probabilities were asked for, or no window has two tokens
   */
  public record Corpus(
      long documents,
      long windows,
      long failedWindows,
      long tokens,
      Optional<Perplexity> perplexity) {}

  /**
   * exp of the mean of -ln p of tokens. A window's first token is predicted from nothing and does
   * not count; the windows of a document count together.
   *
   * @param corpus over all tokens alike
   * @param tokens how many that is
   * @param documents over documents alike
   * @param highest documents with the highest, the highest first
   * @param lowest documents with the lowest, the lowest first
   */
  public record Perplexity(
      double corpus,
      long tokens,
      Quantiles documents,
      List<Document> highest,
      List<Document> lowest) {
    public Perplexity {
      highest = List.copyOf(highest);
      lowest = List.copyOf(lowest);
    }
  }

  /**
   * A document.
   *
   * @param windows all of it
   * @param tokens of the windows that could be read
   */
  public record Document(String docId, long windows, long tokens, double perplexity)
      implements Serializable {}

  /**
   * Windows that could not be read for one reason.
   *
   * @param examples a few of them
   */
  public record Failure(String error, long windows, List<Place> examples) {
    public Failure {
      examples = List.copyOf(examples);
    }
  }

  /** Where a window is: its number in its document, from 0. */
  public record Place(String docId, int window) {}

  /** One head, and those of its scores that have values. */
  public record Head(int layer, int head, Map<HeadScore, Score> scores) implements Serializable {
    public Head {
      EnumMap<HeadScore, Score> copy = new EnumMap<>(HeadScore.class);
      copy.putAll(scores);
      scores = Collections.unmodifiableMap(copy);
    }
  }

  /**
   * One score of a head over windows.
   *
   * @param lowest windows where it is lowest, the lowest first
   * @param highest windows where it is highest, the highest first
   */
  public record Score(Quantiles distribution, List<Window> lowest, List<Window> highest)
      implements Serializable {
    public Score {
      lowest = List.copyOf(lowest);
      highest = List.copyOf(highest);
    }
  }

  /** A score of a head in one window, and where that is. */
  public record Window(String docId, int window, int tokens, double value)
      implements Serializable {}

  /** Scores that some head has values of. */
  public Set<HeadScore> scores() {
    Set<HeadScore> scores = EnumSet.noneOf(HeadScore.class);
    heads.forEach(head -> scores.addAll(head.scores().keySet()));
    return scores;
  }

  /**
   * For programs: one object on one line, schema {@code loupe-corpus/1}. {@code run} are the facts;
   * {@code documents}, {@code windows}, {@code failed_windows} and {@code tokens} count; {@code
   * perplexity} (null without) has {@code corpus}, {@code tokens}, the distribution over {@code
   * documents}, {@code highest} and {@code lowest}; {@code failures} have {@code error}, {@code
   * windows} and {@code examples}; {@code heads} have {@code layer}, {@code head} and {@code
   * scores}: by {@link HeadScore#key}, a distribution with {@code lowest} and {@code highest}
   * windows. A distribution has {@code count}, {@code mean}, {@code sd}, {@code min}, {@code p5},
   * {@code p25}, {@code p50}, {@code p75}, {@code p95} and {@code max}. Numbers have six digits;
   * characters that act on what shows them, such as directions, are escaped.
   */
  public String json() {
    return CorpusJson.write(this);
  }

  /** As a page for a browser: one file, nothing fetched. */
  public String html() {
    return new CorpusPage(this).toString();
  }
}
