package dev.loupe.spark;

import static org.apache.spark.sql.functions.col;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.attention.HeadScore;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.corpus.CorpusJobs;
import dev.loupe.corpus.CorpusReport;
import dev.loupe.generate.BatchReader;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Token;
import dev.loupe.spark.Corpora.Heard;
import dev.loupe.spark.Corpora.Sum;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Documents to rows on one machine: thousands of short ones, and bad ones of every kind. */
class CorpusTest extends CorpusFixture {
  /** With the sweeps ten thousand; in hundreds, of which each has one of every kind. */
  private static final int DOCUMENTS = Integer.getInteger("corpus.documents", 2000);

  private static Path prepared;
  private static CorpusJobs.Prepared preparation;
  private static CorpusJobs.Ran ran;

  @BeforeAll
  static void readDocuments() throws Exception {
    Corpora.write(folder.resolve("docs.jsonl"), DOCUMENTS);
    prepared = folder.resolve("prepared");
    preparation =
        jobs.prepare(Corpora.preparation(folder.resolve("docs.jsonl"), prepared), new Heard());
    ran = jobs.run(Corpora.run(prepared, folder.resolve("results")), new Heard());
    // another run in the same folder, for which a report must not be taken
    Corpora.write(folder.resolve("few.jsonl"), 100);
    Path few = folder.resolve("prepared-few");
    jobs.prepare(Corpora.preparation(folder.resolve("few.jsonl"), few), new Heard());
    jobs.run(Corpora.run(few, folder.resolve("results")), new Heard());
  }

  private static Dataset<Row> rows() {
    return spark.read().parquet(ran.folder());
  }

  @Test
  void everyDocumentIsThereGoodOrBad() {
    assertEquals(DOCUMENTS, preparation.documents());
    assertFalse(preparation.existed());
    assertEquals(4 * DOCUMENTS / 100, preparation.failed());
    // each long one is cut into two windows
    assertEquals(97 * DOCUMENTS / 100, preparation.windows());
    assertEquals(preparation.windows(), ran.windows());
    assertEquals(preparation.tokens(), ran.tokens());
    assertEquals(preparation.failed(), ran.failed());
    assertEquals(4, ran.waves());
    assertFalse(ran.interrupted());
    Sum sum = Sum.of(spark, ran.folder());
    assertEquals(HEADS * ran.windows() + ran.failed(), sum.rows());
    assertEquals(sum.rows(), sum.different());
  }

  @Test
  void whatIsWrongIsSaidOfEach() {
    Map<String, Long> errors = new HashMap<>();
    for (Row row : rows().where(col(Results.ERROR).isNotNull()).collectAsList()) {
      errors.merge(row.<String>getAs(Results.ERROR), 1L, Long::sum);
      assertTrue(row.isNullAt(row.fieldIndex(Results.LAYER)));
      assertTrue(row.isNullAt(row.fieldIndex(Results.LOG_PROB)));
      assertTrue(row.isNullAt(row.fieldIndex("entropy")));
    }
    assertEquals(
        Map.of(
            "it is not UTF-8", DOCUMENTS / 100L,
            "the line is not a JSON object", DOCUMENTS / 100L,
            "it has no text: no string in field \"text\"", DOCUMENTS / 100L,
            "it is empty", DOCUMENTS / 100L),
        errors);
    Set<String> broken =
        rows()
            .where(col(Results.ERROR).equalTo("it is not UTF-8"))
            .select(Results.DOC_ID)
            .collectAsList()
            .stream()
            .map(row -> row.getString(0))
            .collect(Collectors.toSet());
    assertTrue(broken.stream().allMatch(id -> id.startsWith("docs.jsonl@")), broken::toString);
    assertTrue(
        rows().where(col(Results.DOC_ID).equalTo("d30").and(col(Results.ERROR).isNotNull())).count()
            == 1);
  }

  @Test
  void rowsHaveTheColumnsThatAreDocumented() {
    Set<String> expected = new TreeSet<>(List.of(Results.SCHEMA.fieldNames()));
    expected.add("wave");
    assertEquals(expected, new TreeSet<>(List.of(rows().columns())));
    for (String name : Results.SCHEMA.fieldNames()) {
      assertEquals(
          Results.SCHEMA.apply(name).dataType().asNullable(),
          rows().schema().apply(name).dataType().asNullable(),
          name);
    }
  }

  @Test
  void rowsAreToTheBitWhatTheModelSaysOfTheDocumentAlone() throws Exception {
    Map<String, int[]> texts = new HashMap<>();
    for (Row row :
        spark
            .read()
            .parquet(prepared.resolve(Prepared.DOCUMENTS).toString())
            .where(
                "error is null and (pmod(hash(doc_id), %d) = 0 or doc_id = 'd50')"
                    .formatted(DOCUMENTS / 100))
            .collectAsList()) {
      texts.put(
          row.<String>getAs(Results.DOC_ID) + "/" + row.<Integer>getAs(Results.WINDOW),
          row.<Integer>getList(row.fieldIndex(Prepared.IDS)).stream().mapToInt(i -> i).toArray());
    }
    assertTrue(texts.size() > 50 && texts.containsKey("d50/1"), texts.size() + " windows");
    Map<String, List<Row>> found =
        rows().where(col(Results.ERROR).isNull()).collectAsList().stream()
            .collect(
                Collectors.groupingBy(
                    row ->
                        row.<String>getAs(Results.DOC_ID)
                            + "/"
                            + row.<Integer>getAs(Results.WINDOW)));
    try (Loupe loupe = Loupe.open(Corpora.DEMO, Options.defaults().backend(Backend.CPU));
        BatchReader alone = loupe.batchReader(Optional.empty(), true, BatchReader.DEFAULT_TOKENS)) {
      int[] whole = loupe.tokenizer().encode("my lord, ".repeat(120), false);
      int[] cut =
          Stream.of("d50/0", "d50/1")
              .flatMapToInt(window -> Arrays.stream(texts.get(window)))
              .toArray();
      assertArrayEquals(whole, cut, "windows of one document");
      for (Map.Entry<String, int[]> text : texts.entrySet()) {
        GenerateRequest request =
            GenerateRequest.ids(text.getValue())
                .tokens(0)
                .logprobs(0)
                .attention(AttentionSelection.all().headStatisticsOnly());
        Generation run = loupe.run(request).getFirst();
        HeadStatistics heads = run.headStatistics().orElseThrow();
        double sum = run.tokens().stream().skip(1).mapToDouble(Token::logprob).sum();
        double exact = alone.read(List.of(text.getValue()).iterator()).next().logprob();
        List<Row> rows = found.getOrDefault(text.getKey(), List.of());
        assertEquals(HEADS, rows.size(), text.getKey());
        for (Row row : rows) {
          int layer = row.getAs(Results.LAYER);
          int head = row.getAs(Results.HEAD);
          assertEquals(text.getValue().length, row.<Integer>getAs(Results.N_TOKENS));
          for (HeadScore score : HeadScore.values()) {
            Double value = row.getAs(score.key());
            double expected =
                score.needsValueNorms() ? Double.NaN : heads.score(score, layer, head);
            assertEquals(expected, value == null ? Double.NaN : value, score + " " + text.getKey());
          }
          List<HeadStatistics.Edge> edges =
              row.<Row>getList(row.fieldIndex(Results.EDGES)).stream()
                  .map(e -> new HeadStatistics.Edge(e.getInt(0), e.getInt(1), e.getFloat(2)))
                  .toList();
          assertEquals(
              heads.edges(layer, head, true).stream().limit(2).toList(), edges, text.getKey());
          Double logprob = row.getAs(Results.LOG_PROB);
          if (text.getValue().length == 1) {
            assertEquals(null, logprob);
            continue;
          }
          assertEquals(exact, logprob);
          assertEquals(sum, logprob, 1e-5 * Math.abs(sum));
          assertEquals(
              Math.exp(-exact / (text.getValue().length - 1)),
              row.<Double>getAs(Results.PERPLEXITY));
        }
      }
    }
  }

  @Test
  void whatIsFinishedIsNotDoneAgain() throws Exception {
    CorpusJobs.Prepared again =
        jobs.prepare(Corpora.preparation(folder.resolve("docs.jsonl"), prepared), new Heard());
    assertTrue(again.existed());
    assertEquals(preparation.tokens(), again.tokens());
    CorpusJobs.Ran rerun = jobs.run(Corpora.run(prepared, folder.resolve("results")), new Heard());
    assertEquals(4, rerun.skipped());
    assertEquals(0, rerun.waves());
    assertEquals(ran.folder(), rerun.folder());
  }

  @Tag("sweep")
  @Test
  void aReportAddsUpARun() throws Exception {
    CorpusReport report = jobs.report(ran.folder(), Optional.empty());
    assertEquals(DOCUMENTS, report.corpus().documents());
    assertEquals(ran.tokens(), report.corpus().tokens());
    assertEquals(ran.failed(), report.corpus().failedWindows());
    assertEquals(HEADS, report.heads().size());
    assertEquals(4, report.failures().size());
    assertEquals(4, report.facts().get("waves_read"));
    assertTrue(report.json().contains("\"waves\":4,"), report.json());
    String results = folder.resolve("results").toString();
    refused("has the runs", () -> jobs.report(results, Optional.empty()));
    refused("has the runs", () -> jobs.report(results, Optional.of("0123")));
    refused("does not exist", () -> jobs.report(results + "-not", Optional.empty()));
    refused("no results of a run", () -> jobs.report(prepared.toString(), Optional.empty()));
    String hash = ran.folder().substring(ran.folder().indexOf("run=") + 4);
    assertEquals(report.json(), jobs.report(results, Optional.of(hash)).json());
  }
}
