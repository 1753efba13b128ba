package dev.loupe.corpus;

import dev.loupe.Backend;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.generate.BatchReader;
import dev.loupe.ops.Precision;

/**
 * What a model is asked about documents that were prepared.
 *
 * @param prepared the folder that was prepared
 * @param output folder of results; each run has a folder of its own in it, named after all that its
 *     results depend on
 * @param model which model
 * @param backend what to run on; AUTO takes the card that Spark assigns, on one machine the first
 * @param precision what weights are computed with
 * @param threads CPU threads of an executor; 0 for as many as it has cores
 * @param tokens of a pass
 * @param logprobs whether each document's log-probability is wanted
 * @param statistics whether the statistics of heads are
 * @param valueNorms whether those by norm are
 * @param edges how many of the heaviest edges of each head are kept, 0 to {@link
 *     HeadStatistics#EDGES}
 */
public record CorpusRun(
    String prepared,
    String output,
    ModelPlace model,
    Backend backend,
    Precision precision,
    int threads,
    int tokens,
    boolean logprobs,
    boolean statistics,
    boolean valueNorms,
    int edges) {
  public CorpusRun {
    if (tokens < 1 || tokens > BatchReader.MOST_TOKENS) {
      throw new IllegalArgumentException(
          "%d tokens a pass: not 1 to %d".formatted(tokens, BatchReader.MOST_TOKENS));
    }
    if (threads < 0 || threads > 1024) {
      throw new IllegalArgumentException("%d threads: not 0 to 1024".formatted(threads));
    }
    if (edges < 0 || edges > HeadStatistics.EDGES) {
      throw new IllegalArgumentException(
          "%d edges: not 0 to %d".formatted(edges, HeadStatistics.EDGES));
    }
    if (!statistics && (valueNorms || edges > 0)) {
      throw new IllegalArgumentException("norms and edges are statistics of heads, which are off");
    }
    if (!statistics && !logprobs) {
      throw new IllegalArgumentException("neither statistics nor log-probabilities: nothing to do");
    }
  }
}
