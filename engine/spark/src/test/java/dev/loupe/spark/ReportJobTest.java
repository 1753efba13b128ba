package dev.loupe.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.attention.HeadScore;
import dev.loupe.corpus.CorpusReport;
import dev.loupe.corpus.CorpusReport.Corpus;
import dev.loupe.corpus.CorpusReport.Head;
import dev.loupe.corpus.CorpusReport.Perplexity;
import dev.loupe.corpus.CorpusReport.Score;
import dev.loupe.corpus.CorpusReport.Window;
import dev.loupe.corpus.Quantiles;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ReportJobTest {
  @TempDir static Path dir;
  private static SparkSession spark;

  @BeforeAll
  static void start() {
    spark =
        SparkSession.builder()
            .master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", dir.toString())
            .getOrCreate();
  }

  @AfterAll
  static void stop() {
    if (spark != null) {
      spark.stop();
    }
  }

  /** A row with a value for each score named, in the order of {@link HeadScore}. */
  private static Row row(
      String doc,
      int window,
      @Nullable Integer tokens,
      @Nullable Double logProb,
      @Nullable String error,
      @Nullable Integer layer,
      @Nullable Integer head,
      @Nullable Double entropy,
      @Nullable Double self) {
    List<@Nullable Object> cells = new ArrayList<>();
    Collections.addAll(cells, doc, window, tokens, logProb);
    cells.add(logProb == null || tokens == null ? null : Math.exp(-logProb / (tokens - 1)));
    Collections.addAll(cells, error, layer, head);
    for (HeadScore score : HeadScore.values()) {
      cells.add(score == HeadScore.ENTROPY ? entropy : score == HeadScore.SELF ? self : null);
    }
    cells.add(null);
    return RowFactory.create(cells.toArray());
  }

  private static Dataset<Row> data(List<Row> rows) {
    return spark.createDataFrame(rows, Results.SCHEMA);
  }

  /** Heads 0 and 2 of layer 3, as of a run that was asked for no others. */
  private static List<Row> rows() {
    List<Row> rows = new ArrayList<>();
    for (int head : new int[] {0, 2}) {
      rows.add(row("a", 0, 5, -8.0, null, 3, head, 1.0 + head, 0.5));
      rows.add(row("a", 1, 3, -2.0, null, 3, head, 2.0 + head, 0.5));
      rows.add(row("b", 0, 3, -6.0, null, 3, head, 6.0 + head, head == 0 ? 0.5 : null));
      rows.add(row("c", 0, 1, null, null, 3, head, 0.0 + head, null));
      rows.add(row("d", 1, 2, -1.0, null, 3, head, 1.0 + head, Double.NaN));
    }
    rows.add(row("d", 0, 4, null, "broken", null, null, null, null));
    rows.add(row("e", 0, null, null, "broken", null, null, null, null));
    rows.add(row("b", 1, null, null, "other", null, null, null, null));
    rows.add(row("f", 0, null, null, "broken", null, null, null, null));
    rows.add(row("e", 1, null, null, "broken", null, null, null, null));
    return rows;
  }

  private static CorpusReport report(List<Row> rows) {
    return ReportJob.aggregate(data(rows), Map.of("model", "m"));
  }

  @Test
  void aWindowCountsOnceHoweverManyHeads() {
    Corpus corpus = report(rows()).corpus();
    assertEquals(6, corpus.documents());
    assertEquals(10, corpus.windows());
    assertEquals(5, corpus.failedWindows());
    assertEquals(5 + 3 + 3 + 1 + 2, corpus.tokens());
    Perplexity perplexity = corpus.perplexity().orElseThrow();
    assertEquals(4 + 2 + 2 + 1, perplexity.tokens());
    assertEquals(Math.exp(17.0 / 9), perplexity.corpus(), 1e-12);
    double a = Math.exp(10.0 / 6); // of two windows
    double b = Math.exp(3);
    double d = Math.E;
    assertEquals(
        List.of(
            new CorpusReport.Document("b", 2, 3, b),
            new CorpusReport.Document("a", 2, 8, a),
            new CorpusReport.Document("d", 2, 2, d)),
        perplexity.highest());
    assertEquals(perplexity.highest().reversed(), perplexity.lowest());
    double mean = (a + b + d) / 3;
    assertEquals(3, perplexity.documents().count());
    assertEquals(mean, perplexity.documents().mean(), 1e-12);
    double variance = (sq(a - mean) + sq(b - mean) + sq(d - mean)) / 3;
    assertEquals(Math.sqrt(variance), perplexity.documents().sd(), 1e-12);
    assertEquals(a, perplexity.documents().p50());
  }

  private static double sq(double x) {
    return x * x;
  }

  @Test
  void errorsAreCountedAndHaveExamples() {
    assertEquals(
        "[Failure[error=broken, windows=4, examples=[Place[docId=d, window=0], Place[docId=e,"
            + " window=0], Place[docId=e, window=1]]], Failure[error=other, windows=1,"
            + " examples=[Place[docId=b, window=1]]]]",
        report(rows()).failures().toString());
  }

  @Test
  void headsByHand() {
    CorpusReport report = report(rows());
    assertEquals(EnumSet.of(HeadScore.ENTROPY, HeadScore.SELF), report.scores());
    assertEquals(2, report.heads().size());
    Head head = report.heads().get(1);
    assertEquals(3, head.layer());
    assertEquals(2, head.head());
    Score entropy = Objects.requireNonNull(head.scores().get(HeadScore.ENTROPY));
    // 2 3 3 4 8
    double sd = entropy.distribution().sd();
    assertEquals(Math.sqrt(22.0 / 5), sd, 1e-14);
    assertEquals(new Quantiles(5, 4, sd, 2, 2, 3, 3, 4, 8, 8), entropy.distribution());
    assertEquals(
        List.of(new Window("c", 0, 1, 2), new Window("a", 0, 5, 3), new Window("d", 1, 2, 3)),
        entropy.lowest());
    assertEquals(
        List.of(new Window("b", 0, 3, 8), new Window("a", 1, 3, 4), new Window("a", 0, 5, 3)),
        entropy.highest());
    assertEquals(
        new Quantiles(2, 0.5, 0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5),
        Objects.requireNonNull(head.scores().get(HeadScore.SELF)).distribution());
    Score other = Objects.requireNonNull(report.heads().getFirst().scores().get(HeadScore.SELF));
    assertEquals(3, other.distribution().count());
  }

  @Test
  void withoutStatisticsThereAreDocumentsOnly() {
    CorpusReport report =
        report(
            List.of(
                row("a", 0, 2, -1.0, null, null, null, null, null),
                row("a", 1, 3, -3.0, null, null, null, null, null),
                row("b", 0, 3, null, null, null, null, null, null)));
    assertEquals(List.of(), report.heads());
    assertEquals(List.of(), report.failures());
    assertEquals(2, report.corpus().documents());
    assertEquals(8, report.corpus().tokens());
    assertEquals(Math.exp(4.0 / 3), report.corpus().perplexity().orElseThrow().corpus(), 1e-12);
    CorpusReport none = report(List.of());
    assertEquals(0, none.corpus().windows());
    assertTrue(none.corpus().perplexity().isEmpty());
    assertFalse(none.html().isEmpty());
  }

  /** More values than are kept each, and more heads than are summed up in one go. */
  private static List<Row> many() {
    Random random = new Random(3);
    List<Row> rows = new ArrayList<>();
    for (int window = 0; window < 1500; window++) {
      String doc = "doc " + window / 4;
      double logProb = -200 * random.nextDouble();
      if (window % 50 == 49) {
        rows.add(row(doc, window % 4, 9, null, "error " + window % 3, null, null, null, null));
        continue;
      }
      for (int head = 0; head < 8; head++) {
        double entropy = Math.exp(random.nextGaussian());
        double self = random.nextInt(3) / 2.0;
        rows.add(row(doc, window % 4, 64, logProb, null, head / 4, head % 4, entropy, self));
      }
    }
    return rows;
  }

  @Tag("sweep")
  @Test
  void theReportDoesNotDependOnHowRowsAreSpread() {
    List<Row> rows = many();
    CorpusReport report = report(rows);
    Score entropy =
        Objects.requireNonNull(report.heads().getFirst().scores().get(HeadScore.ENTROPY));
    assertEquals(1470, entropy.distribution().count());
    assertEquals(1, entropy.distribution().p50(), 0.1);
    String json = report.json();
    Collections.shuffle(rows, new Random(4));
    for (int partitions : new int[] {1, 3, 40}) {
      Dataset<Row> spread = data(rows).repartition(partitions);
      assertEquals(report, ReportJob.aggregate(spread, Map.of("model", "m")), "to the last bit");
      assertEquals(json, ReportJob.aggregate(spread, Map.of("model", "m")).json());
    }
  }

  @Test
  void writtenResultsAreRead() {
    String folder = dir.resolve("results").toString();
    data(rows()).write().parquet(folder + "/run=1f/wave=0");
    Dataset<Row> read = spark.read().parquet(folder + "/run=1f");
    assertEquals(report(rows()), ReportJob.aggregate(read, Map.of("model", "m")));
  }
}
