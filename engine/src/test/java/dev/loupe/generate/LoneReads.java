package dev.loupe.generate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Loupe;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.attention.HeadScore;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.generate.BatchReader.Result;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** What a text of its own gives, and that texts read together give the same. */
final class LoneReads {
  static final AttentionSelection ALL =
      AttentionSelection.all().headStatisticsOnly().withValueNorms();

  private LoneReads() {}

  /** A text, and what a run of its own finds in it. */
  record Read(List<Integer> ids, double logprob, HeadStatistics heads) {
    int[] text() {
      return ids.stream().mapToInt(id -> id).toArray();
    }
  }

  static Read readAlone(Loupe loupe, int[] text) {
    Generation run =
        loupe.run(GenerateRequest.ids(text).tokens(0).logprobs(0).attention(ALL)).getFirst();
    double logprob = run.tokens().stream().skip(1).mapToDouble(Token::logprob).sum();
    List<Integer> ids = run.tokens().stream().map(Token::id).toList();
    return new Read(
        ids, text.length == 1 ? Double.NaN : logprob, run.headStatistics().orElseThrow());
  }

  static List<Result> read(BatchReader reader, List<Read> texts) {
    return all(reader, texts.stream().map(Read::text).toList());
  }

  static List<Result> all(BatchReader reader, List<int[]> texts) {
    List<Result> results = new ArrayList<>();
    reader.read(texts.iterator()).forEachRemaining(results::add);
    assertEquals(texts.size(), results.size());
    return results;
  }

  static void same(HeadStatistics expected, HeadStatistics actual) {
    assertEquals(expected.tokens(), actual.tokens());
    assertEquals(expected.hasValueNorms(), actual.hasValueNorms());
    for (int layer : actual.layers()) {
      for (int head : actual.heads()) {
        for (HeadScore score : HeadScore.values()) {
          if (actual.hasValueNorms() || !score.needsValueNorms()) {
            assertEquals(
                expected.score(score, layer, head), actual.score(score, layer, head), score.key());
          }
        }
        for (boolean ignoreFirst : new boolean[] {false, true}) {
          assertEquals(
              expected.edges(layer, head, ignoreFirst), actual.edges(layer, head, ignoreFirst));
        }
        if (actual.hasValueNorms()) {
          assertEquals(expected.edgesByNorm(layer, head), actual.edgesByNorm(layer, head));
        }
      }
    }
  }

  static void same(List<Read> texts, List<Double> logprobs, List<Result> results) {
    for (int i = 0; i < texts.size(); i++) {
      Result result = results.get(i);
      Read text = texts.get(i);
      assertEquals(Optional.empty(), result.error());
      assertEquals(text.ids().size(), result.tokens());
      same(text.heads(), result.heads().orElseThrow());
      assertEquals(logprobs.get(i), result.logprob());
      int others = text.ids().size() - 1;
      if (others == 0) {
        assertTrue(Double.isNaN(result.logprob()) && Double.isNaN(result.perplexity()));
      } else {
        assertEquals(text.logprob(), result.logprob(), 1e-6 * Math.abs(text.logprob()));
        double perplexity = Math.exp(-text.logprob() / others);
        assertEquals(perplexity, result.perplexity(), 1e-5 * perplexity);
      }
    }
  }
}
