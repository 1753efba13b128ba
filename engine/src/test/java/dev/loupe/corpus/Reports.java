package dev.loupe.corpus;

import dev.loupe.attention.HeadScore;
import dev.loupe.corpus.CorpusReport.Failure;
import dev.loupe.corpus.CorpusReport.Head;
import dev.loupe.corpus.CorpusReport.Place;
import dev.loupe.corpus.CorpusReport.Score;
import dev.loupe.corpus.CorpusReport.Window;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/** Made-up reports. */
final class Reports {
  /** Ends a script, turns text around, escapes a terminal, is half a character. */
  static final String HOSTILE =
      "</script><script>alert(1)</script><!-- \u202Etxt.exe \u001b[31m \uD800 & \"x\" {{data}} %s";

  private Reports() {}

  static Map<String, Object> facts() {
    Map<String, Object> facts = new LinkedHashMap<>();
    facts.put("model", "models/demo");
    facts.put("sha256", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08");
    facts.put("options", "scores, --batch-tokens 4096");
    return facts;
  }

  /** Scores of each head around a middle of its own; the first document's name is hostile. */
  static CorpusReport of(int layers, int heads, HeadScore... scores) {
    Random random = new Random(7);
    List<Head> all = new ArrayList<>();
    for (int layer = 0; layer < layers; layer++) {
      for (int head = 0; head < heads; head++) {
        Map<HeadScore, Score> values = new EnumMap<>(HeadScore.class);
        for (HeadScore score : scores) {
          double scale = score == HeadScore.ENTROPY ? 5 : score == HeadScore.MEAN_DISTANCE ? 90 : 1;
          double middle = scale * Math.pow(random.nextDouble(), 3);
          ScoreSummary summary = new ScoreSummary();
          for (int window = 0; window < 40; window++) {
            double value = middle * Math.exp(0.3 * random.nextGaussian());
            summary.add(new Window(doc(window), window % 3, 20 + window, Math.min(scale, value)));
          }
          values.put(score, summary.score());
        }
        all.add(new Head(layer, head, values));
      }
    }
    CorpusSummary corpus = new CorpusSummary();
    for (int i = 0; i < 40; i++) {
      corpus.add(
          doc(i), 1 + i % 3, i % 8 == 1 ? 1 : 0, 100L * i, 99L * i, -99.0 * i * (2 + i / 20.0));
    }
    return new CorpusReport(
        facts(),
        corpus.corpus(),
        List.of(
            new Failure(
                "not UTF-8: byte 17", 4, List.of(new Place(doc(1), 0), new Place(doc(9), 1))),
            new Failure(HOSTILE, 1, List.of(new Place(HOSTILE, 0)))),
        all);
  }

  private static String doc(int i) {
    return i == 0 ? HOSTILE : "articles/2026/%03d.txt".formatted(i);
  }
}
