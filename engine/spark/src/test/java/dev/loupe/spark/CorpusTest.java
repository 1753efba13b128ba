package dev.loupe.spark;

import static org.apache.spark.sql.functions.col;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.loupe.Backend;
import dev.loupe.BackendException;
import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.attention.HeadScore;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.corpus.CorpusException;
import dev.loupe.corpus.CorpusJobs;
import dev.loupe.corpus.CorpusReport;
import dev.loupe.corpus.CorpusRun;
import dev.loupe.corpus.ModelPlace;
import dev.loupe.corpus.Preparation;
import dev.loupe.corpus.Preparation.Format;
import dev.loupe.corpus.Preparation.LongTexts;
import dev.loupe.generate.BatchReader;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Token;
import dev.loupe.ops.Precision;
import dev.loupe.spark.Corpora.Heard;
import dev.loupe.spark.Corpora.Sum;
import dev.loupe.text.Tokenizer;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CancellationException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import java.util.zip.GZIPOutputStream;
import org.apache.spark.SparkException;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** Documents to rows on one machine: ten thousand short ones, and bad ones of every kind. */
class CorpusTest {
  private static final int DOCUMENTS = 10_000;
  private static final int HEADS = 18; // 6 layers of 3

  @TempDir private static Path folder;

  private static SparkSession spark;
  private static SparkJobs jobs;
  private static Path prepared;
  private static CorpusJobs.Prepared preparation;
  private static CorpusJobs.Ran ran;
  private static Path few; // prepared, for what is done several times
  private static CorpusJobs.Ran fewRead;

  @BeforeAll
  static void readTenThousandDocuments() throws Exception {
    spark = Corpora.local();
    jobs = new SparkJobs(spark);
    Corpora.write(folder.resolve("docs.jsonl"), DOCUMENTS);
    prepared = folder.resolve("prepared");
    preparation =
        jobs.prepare(Corpora.preparation(folder.resolve("docs.jsonl"), prepared), new Heard());
    ran = jobs.run(Corpora.run(prepared, folder.resolve("results")), new Heard());
    Corpora.write(folder.resolve("few.jsonl"), 1000);
    few = folder.resolve("prepared-few");
    jobs.prepare(Corpora.preparation(folder.resolve("few.jsonl"), few), new Heard());
    fewRead = jobs.run(Corpora.run(few, folder.resolve("results")), new Heard());
  }

  @AfterAll
  static void stop() {
    jobs.close();
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
            "it is not UTF-8", 100L,
            "the line is not a JSON object", 100L,
            "it has no text: no string in field \"text\"", 100L,
            "it is empty", 100L),
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
            .where("error is null and (pmod(hash(doc_id), 100) = 0 or doc_id = 'd50')")
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

  @Test
  void anInterruptedRunGoesOnAfterItsLastWave() throws Exception {
    Path results = folder.resolve("interrupted");
    long half = fewRead.tokens() / 2;
    CorpusJobs.Ran first = jobs.run(Corpora.run(few, results), new Heard(n -> n < half));
    assertTrue(first.interrupted());
    assertTrue(first.waves() >= 1 && first.waves() < 4, first.toString());
    CorpusJobs.Ran rest = jobs.run(Corpora.run(few, results), new Heard());
    assertEquals(first.waves(), rest.skipped());
    assertEquals(4 - first.waves(), rest.waves());
    assertEquals(Sum.of(spark, fewRead.folder()), Sum.of(spark, rest.folder()));
  }

  @Test
  void otherOptionsHaveAFolderOfTheirOwn() throws Exception {
    Path results = folder.resolve("results");
    CorpusRun onlyOdds = asked(few, results, Precision.F32, 64, true, false, false, 0);
    CorpusJobs.Ran odds = jobs.run(onlyOdds, new Heard());
    assertEquals(4, odds.waves());
    assertFalse(odds.folder().equals(fewRead.folder()));
    Dataset<Row> rows = spark.read().parquet(odds.folder());
    assertEquals(odds.windows() + odds.failed(), rows.count());
    assertEquals(
        0,
        rows.where(col(Results.ERROR).isNull())
            .join(
                spark
                    .read()
                    .parquet(fewRead.folder())
                    .where("layer = 0 and head = 0")
                    .select("doc_id", "window", "log_prob"),
                new String[] {"doc_id", "window", "log_prob"},
                "left_anti")
            .where(col(Results.LOG_PROB).isNotNull())
            .count(),
        "other log-probabilities in smaller passes");
  }

  private static CorpusRun asked(
      Path prepared,
      Path results,
      Precision precision,
      int tokens,
      boolean logprobs,
      boolean statistics,
      boolean valueNorms,
      int edges) {
    CorpusRun plain = Corpora.run(prepared, results);
    return new CorpusRun(
        plain.prepared(),
        plain.output(),
        plain.model(),
        Backend.AUTO,
        precision,
        1,
        tokens,
        logprobs,
        statistics,
        valueNorms,
        edges);
  }

  @Test
  void aRunIsNamedByAllThatItsResultsDependOn() throws Exception {
    Path to = folder.resolve("named");
    Path twin = Files.createDirectories(folder.resolve("twin")); // other documents, as many
    Files.writeString(
        twin.resolve(Description.NAME),
        Files.readString(few.resolve(Description.NAME)).replaceFirst("(\"id\": \")....", "$10123"));
    List<CorpusRun> different =
        List.of(
            asked(few, to, Precision.F32, 64, true, true, false, 0),
            asked(few, to, Precision.F16, 64, true, true, false, 0),
            asked(few, to, Precision.F32, 64, false, true, false, 0),
            asked(few, to, Precision.F32, 64, true, false, false, 0),
            asked(few, to, Precision.F32, 64, true, true, true, 0),
            asked(few, to, Precision.F32, 64, true, true, false, 1),
            asked(twin, to, Precision.F32, 64, true, true, false, 0));
    Set<String> folders = new HashSet<>();
    for (CorpusRun run : different) {
      folders.add(jobs.run(run, new Heard(_ -> false)).folder()); // ended at once
    }
    assertEquals(different.size(), folders.size(), folders::toString);
    CorpusRun inOtherPasses = asked(few, to, Precision.F32, 1024, true, true, false, 0);
    folders.add(jobs.run(inOtherPasses, new Heard(_ -> false)).folder());
    assertEquals(different.size(), folders.size(), "passes change nothing");
  }

  @Test
  void textFilesLinesAndParquetAreReadToo() throws Exception {
    Path texts = Files.createDirectories(folder.resolve("texts/sub"));
    Files.writeString(texts.resolve("one.txt"), "my lord");
    Files.writeString(texts.resolveSibling("two words.txt"), "good night");
    Files.write(texts.resolve("bad.txt"), new byte[] {'a', (byte) 0xff});
    Files.write(texts.resolve("empty.txt"), new byte[0]);
    Files.write(texts.resolve("torn.txt.gz"), new byte[] {1, 2, 3});
    Files.writeString(texts.resolve("_hidden.txt"), "nobody");
    try (GZIPOutputStream out =
        new GZIPOutputStream(Files.newOutputStream(texts.resolve("three.txt.gz")))) {
      out.write("the king".getBytes(StandardCharsets.UTF_8));
    }
    try (GZIPOutputStream out =
        new GZIPOutputStream(Files.newOutputStream(texts.resolve("bomb.txt.gz")))) {
      for (int i = 0; i < 65; i++) {
        out.write(new byte[1 << 20]);
      }
    }
    assertEquals(
        Map.of(
            "sub/one.txt", "",
            "two words.txt", "",
            "sub/three.txt.gz", "",
            "sub/bad.txt", "it is not UTF-8",
            "sub/empty.txt", "it is empty",
            "sub/bomb.txt.gz", "it has more than 64 MiB",
            "sub/torn.txt.gz", "it can't be decompressed"),
        prepare("texts", Format.AUTO, null, LongTexts.WINDOWS));

    Path lines = folder.resolve("some, more.log");
    Files.writeString(lines, "my lord\n\ngood night\n");
    assertEquals(
        Map.of("some, more.log@0", "", "some, more.log@9", ""),
        prepare("some, more.log", Format.LINES, null, LongTexts.WINDOWS));

    List<String> objects =
        List.of(
            "{\"k\": {\"a\": 1}, \"body\": \"my lord\"}",
            "{\"k\": 7, \"body\": \"good night\"}",
            "{\"body\": \"the king\"}",
            "{\"k\": \"x\", \"body\": 5}",
            "[1]",
            "{\"k\": \"y\", \"body\": \"my lord\"} {}");
    Files.write(folder.resolve("odd.jsonl"), objects);
    int[] starts = new int[objects.size()];
    for (int i = 1; i < starts.length; i++) {
      starts[i] = starts[i - 1] + objects.get(i - 1).length() + 1;
    }
    assertEquals(
        Map.of(
            "odd.jsonl@0",
            "it has no id: no field \"k\"",
            "7",
            "",
            "odd.jsonl@" + starts[2],
            "it has no id: no field \"k\"",
            "x",
            "it has no text: no string in field \"body\"",
            "odd.jsonl@" + starts[4],
            "the line is not a JSON object",
            "odd.jsonl@" + starts[5],
            "the line is not a JSON object"),
        prepare("odd.jsonl", Format.AUTO, "k", LongTexts.WINDOWS));

    Path table = folder.resolve("table");
    spark
        .sql(
            "select * from values (1, 'my lord'), (2, null), (null, 'night'), (4, repeat('my lord ', 300)) as t(k, body)")
        .coalesce(1)
        .write()
        .parquet(table.toString());
    Map<String, String> named = prepare("table", Format.AUTO, "k", LongTexts.REFUSE);
    assertEquals("", named.get("1"));
    assertEquals("it has no text", named.get("2"));
    assertTrue(
        String.valueOf(named.get("4")).matches("it has .* tokens and the model reads 256"),
        named::toString);
    assertEquals(4, named.size());
    assertTrue(named.containsValue("it has no id"), named::toString);
  }

  /** Prepares an input of the folder: what is wrong with each document, by id. */
  private static Map<String, String> prepare(
      String input, Format format, @Nullable String id, LongTexts longTexts) throws Exception {
    Path out = folder.resolve("prepared-" + input);
    Preparation what =
        new Preparation(
            List.of(folder.resolve(input).toString()),
            format,
            "body",
            Optional.ofNullable(id),
            out.toString(),
            false,
            Corpora.demo(),
            true,
            longTexts,
            2,
            1);
    jobs.prepare(what, new Heard());
    Map<String, String> errors = new HashMap<>();
    for (Row row :
        spark.read().parquet(out.resolve(Prepared.DOCUMENTS).toString()).collectAsList()) {
      String error = row.getAs(Results.ERROR);
      errors.put(
          row.getAs(Results.DOC_ID),
          error == null
              ? ""
              : error.startsWith("it can't be") ? "it can't be decompressed" : error);
    }
    return errors;
  }

  private static void refused(String words, Executable job) {
    CorpusException e = assertThrows(CorpusException.class, job);
    assertTrue(String.valueOf(e.getMessage()).contains(words), e.getMessage());
  }

  @Test
  void whatCannotBeMeantIsRefusedBeforeAnythingIsWritten() throws Exception {
    Path out = folder.resolve("refused");
    refused(
        "does not exist",
        () -> jobs.prepare(Corpora.preparation(folder.resolve("nothing"), out), new Heard()));
    Path mixed = Files.createDirectories(folder.resolve("mixed"));
    Files.writeString(mixed.resolve("a.txt"), "a");
    Files.writeString(mixed.resolve("b.jsonl"), "{}");
    refused(
        "several formats (text, json)",
        () -> jobs.prepare(Corpora.preparation(mixed, out), new Heard()));
    Path odd = Files.createDirectories(folder.resolve("odd"));
    refused("no files in", () -> jobs.prepare(Corpora.preparation(odd, out), new Heard()));
    Files.writeString(odd.resolve("a.pdf"), "a");
    refused(
        "its ending says no format",
        () -> jobs.prepare(Corpora.preparation(odd, out), new Heard()));
    assertFalse(Files.exists(out));
    refused(
        "nothing in it was prepared by Loupe",
        () -> jobs.prepare(Corpora.preparation(folder.resolve("docs.jsonl"), odd), new Heard()));
    assertEquals("a", Files.readString(odd.resolve("a.pdf")));
    Path one = folder.resolve("one.txt");
    Files.writeString(one, "my lord");
    refused(
        "prepared otherwise", () -> jobs.prepare(Corpora.preparation(one, prepared), new Heard()));
    for (String nowhere : List.of("foo://a/b", "s3a://a/b")) {
      refused(nowhere + ": ", () -> jobs.report(nowhere, Optional.empty()));
    }
    refused(
        "nothing that loupe corpus prepare has finished",
        () -> jobs.run(Corpora.run(odd, out), new Heard()));
    String facts = Files.readString(prepared.resolve(Description.NAME));
    Path foreign = Files.createDirectories(folder.resolve("foreign"));
    Files.writeString(
        foreign.resolve(Description.NAME), facts.replace("\"context\": 256", "\"context\": 512"));
    refused(
        "was prepared for a context of 512, and the model reads 256",
        () -> jobs.run(Corpora.run(foreign, out), new Heard()));
    Files.writeString(
        foreign.resolve(Description.NAME),
        facts.replaceFirst("(vocabulary_sha256\": \")....", "$10123"));
    refused(
        "was prepared with another tokenizer",
        () -> jobs.run(Corpora.run(foreign, out), new Heard()));
    CorpusRun missing = Corpora.run(prepared, out);
    BackendException e =
        assertThrows(
            BackendException.class,
            () ->
                jobs.run(
                    new CorpusRun(
                        missing.prepared(),
                        missing.output(),
                        new ModelPlace("/no/such/model", false, Optional.empty()),
                        Backend.CPU,
                        Precision.F32,
                        1,
                        64,
                        true,
                        true,
                        false,
                        0),
                    new Heard()));
    assertTrue(String.valueOf(e.getMessage()).contains("has no /no/such/model"), e.getMessage());
    assertFalse(Files.exists(out));
  }

  @Test
  @Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
  void pipesAndDevicesAreNotRead() throws Exception {
    assumeTrue(Files.exists(Path.of("/usr/bin/mkfifo")), "no mkfifo here");
    Path out = folder.resolve("of-devices");
    Path zero = Files.createDirectories(folder.resolve("devices")).resolve("zero.txt");
    Files.createSymbolicLink(zero, Path.of("/dev/zero"));
    Path pipe = Files.createDirectories(folder.resolve("pipes")).resolve("pipe.jsonl");
    Path described = Files.createDirectories(folder.resolve("piped")).resolve(Description.NAME);
    for (Path at : List.of(pipe, described)) {
      assertEquals(0, new ProcessBuilder("/usr/bin/mkfifo", at.toString()).start().waitFor());
    }
    for (Path odd : List.of(zero, pipe)) {
      for (Path input : List.of(odd, odd.resolveSibling("."))) {
        refused(
            odd + " is not a regular file but a pipe or a device",
            () -> jobs.prepare(Corpora.preparation(input, out), new Heard()));
      }
    }
    refused(
        described + " is not a regular file",
        () -> jobs.run(Corpora.run(folder.resolve("piped"), out), new Heard()));
    assertFalse(Files.exists(out));
  }

  @Test
  void aDescriptionThatLoupeDidNotWriteIsBroken() throws Exception {
    String facts = Files.readString(prepared.resolve(Description.NAME));
    Path broken = Files.createDirectories(folder.resolve("broken"));
    for (String[] change :
        new String[][] {
          {"(?s)^.*$", "[]"},
          {"(?s)^.*$", "["},
          {"(?s)$", "{}"},
          {"\"context\": 256", "\"context\": \"many\""},
          {"\"context\": 256", "\"context\": 1099511627776"},
          {"\"context\": 256", "\"context\": null"},
          {"\"context\": 256", "\"c\": 256"},
          {"\"waves\": [0-9]+", "\"waves\": 0"},
          {"\"waves\": [0-9]+", "\"waves\": 1000000000"},
          {"\"documents\": [0-9]+", "\"documents\": -1"},
          {"\"id\": \"[0-9a-f]+\"", "\"id\": {}"},
          {"(?s)\"tokens_of_waves\": \\[.*?\\]", "\"tokens_of_waves\": {}"},
          {"(?s)\"tokens_of_waves\": \\[.*?\\]", "\"tokens_of_waves\": [0.5]"},
          {"(?s)^.*$", "[".repeat(100_000)},
          {"(?s)^.*$", " ".repeat(17 << 20) + "{}"},
        }) {
      String changed = facts.replaceFirst(change[0], change[1]);
      assertNotEquals(facts, changed, change[0]);
      Files.writeString(broken.resolve(Description.NAME), changed);
      refused(
          Description.NAME + " is broken: prepare or run anew",
          () -> jobs.run(Corpora.run(broken, folder.resolve("of-broken")), new Heard()));
    }
  }

  @Test
  void aJobThatIsEndedWhilePreparingLeavesNothingThatLooksFinished() throws Exception {
    Path out = folder.resolve("ended");
    AtomicBoolean asked = new AtomicBoolean();
    Preparation what = Corpora.preparation(folder.resolve("few.jsonl"), out);
    assertThrows(
        CancellationException.class,
        () -> jobs.prepare(what, new Heard(_ -> asked.getAndSet(true))));
    refused(
        "nothing that loupe corpus prepare has finished",
        () -> jobs.run(Corpora.run(out, folder.resolve("none")), new Heard()));
    assertEquals(1000, jobs.prepare(what, new Heard()).documents());
  }

  @Test
  void aDriverThatIsKilledLosesNoFinishedWave() throws Exception {
    Path results = folder.resolve("killed");
    Process driver = driver(results);
    driver.destroyForcibly().waitFor();
    theRestIsDoneAgain(results);
  }

  @Test
  void aDriverThatIsTerminatedEndsAfterWhatIsFinished() throws Exception {
    Path results = folder.resolve("terminated");
    Process driver = driver(results);
    driver.destroy(); // SIGTERM
    assertTrue(driver.waitFor(100, TimeUnit.SECONDS), CorpusTest::log);
    assertEquals(143, driver.exitValue(), CorpusTest::log);
    assertTrue(log().contains("the same command goes on from there"), CorpusTest::log);
    theRestIsDoneAgain(results);
  }

  /** A run of its own that has finished its first wave. */
  private static Process driver(Path results) throws Exception {
    Process driver =
        new ProcessBuilder(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "--add-modules=jdk.incubator.vector",
                "--enable-native-access=ALL-UNNAMED",
                "--sun-misc-unsafe-memory-access=allow",
                "-Xmx1g",
                "-cp",
                System.getProperty("java.class.path"),
                "dev.loupe.cli.Main",
                "corpus",
                "run",
                few.toString(),
                "-o",
                results.toString(),
                "-m",
                Corpora.DEMO.toString(),
                "--edges",
                "2",
                "--threads",
                "1")
            .redirectErrorStream(true)
            .redirectOutput(folder.resolve("driver.log").toFile())
            .start();
    Path first =
        results.resolve(Path.of(fewRead.folder()).getFileName()).resolve("wave=0/_SUCCESS");
    for (int i = 0; i < 9000 && driver.isAlive() && !Files.exists(first); i++) {
      Thread.sleep(20);
    }
    assertTrue(Files.exists(first), () -> "no wave was finished: " + log());
    return driver;
  }

  private static void theRestIsDoneAgain(Path results) throws Exception {
    CorpusJobs.Ran rest = jobs.run(Corpora.run(few, results), new Heard());
    assertTrue(rest.skipped() >= 1 && rest.waves() >= 1, rest.toString());
    assertEquals(4, rest.skipped() + rest.waves());
    assertEquals(Sum.of(spark, fewRead.folder()), Sum.of(spark, rest.folder()));
  }

  private static String log() {
    try {
      return Files.readString(folder.resolve("driver.log"));
    } catch (IOException e) {
      return e.toString();
    }
  }

  @Test
  void anExecutorWithAnotherModelOrNoneSaysSo() throws Exception {
    OpenModels.Place demo = OpenModels.Place.of(Corpora.demo());
    OpenModels.Place nowhere = new OpenModels.Place("/no/such/model", false, null);
    String other =
        opens(new OpenModels.Wanted(demo, "0".repeat(64), Backend.CPU, Precision.F32, 1, false));
    assertTrue(other.contains("has another model at " + Corpora.DEMO), other);
    assertTrue(other.contains("not " + "0".repeat(64)), other);
    String missing =
        opens(new OpenModels.Wanted(nowhere, "0".repeat(64), Backend.CPU, Precision.F32, 1, false));
    assertTrue(missing.contains("has no /no/such/model"), missing);
    String noCard =
        opens(new OpenModels.Wanted(demo, "0".repeat(64), Backend.CUDA, Precision.F32, 1, false));
    assertTrue(noCard.contains("was assigned no card"), noCard);
  }

  /** What is said of a task that opens this. */
  private static String opens(OpenModels.Wanted wanted) {
    @SuppressWarnings("resource") // the session's own
    JavaSparkContext context = new JavaSparkContext(spark.sparkContext());
    SparkException e =
        assertThrows(
            SparkException.class,
            () ->
                context
                    .parallelize(List.of(1), 1)
                    .map(_ -> OpenModels.open(wanted, TaskContext.get()).says())
                    .collect());
    BackendException said = assertThrows(BackendException.class, () -> Failures.explained(e));
    return String.valueOf(said.getMessage());
  }

  @Test
  void aWaveWithoutDocumentsIsDoneToo() throws Exception {
    Path one = folder.resolve("single.txt");
    Files.writeString(one, "my lord");
    Path out = folder.resolve("prepared-single");
    jobs.prepare(Corpora.preparation(one, out), new Heard());
    CorpusJobs.Ran single = jobs.run(Corpora.run(out, folder.resolve("single")), new Heard());
    assertEquals(4, single.waves());
    assertEquals(HEADS, Sum.of(spark, single.folder()).rows());
    assertEquals(1, jobs.report(single.folder(), Optional.empty()).corpus().documents());
  }

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

  /** As a prompt begins with it; what was prepared with another setting is not taken for this. */
  @Test
  void windowsBeginWithWhatGoesInFront() throws Exception {
    Path model = Files.createDirectory(folder.resolve("with-front"));
    for (String name : List.of("config.json", "model.safetensors")) {
      Files.copy(Corpora.DEMO.resolve(name), model.resolve(name));
    }
    String json = Files.readString(Corpora.DEMO.resolve("tokenizer.json"));
    Files.writeString(
        model.resolve("tokenizer.json"),
        json.replaceFirst(
            "\"post_processor\": \\{[^}]*\\}",
            "\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"<|endoftext|>\",1023],"
                + "\"sep\":[\"<|endoftext|>\",1023]}"));
    Path text =
        Files.writeString(folder.resolve("long.txt"), "ROMEO: a word and another.\n".repeat(60));
    int[] own;
    try (Tokenizer tokenizer = Tokenizer.open(model)) {
      assertEquals(List.of(1023), Arrays.stream(tokenizer.front()).boxed().toList());
      own = tokenizer.encode(Files.readString(text), false);
    }
    for (boolean front : new boolean[] {true, false}) {
      Path out = folder.resolve("prepared-front-" + front);
      Preparation what =
          new Preparation(
              List.of(text.toString()),
              Format.AUTO,
              "text",
              Optional.empty(),
              out.toString(),
              false,
              new ModelPlace(model.toString(), false, Optional.empty()),
              front,
              LongTexts.WINDOWS,
              1,
              1);
      Heard heard = new Heard();
      jobs.prepare(what, heard);
      assertTrue(heard.notes.toString().contains("in front of a text"), heard.notes::toString);
      int[] read =
          spark.read().parquet(out.resolve(Prepared.DOCUMENTS).toString()).collectAsList().stream()
              .sorted(Comparator.comparingInt(row -> row.<Integer>getAs(Results.WINDOW)))
              .map(row -> row.<Integer>getList(row.fieldIndex(Prepared.IDS)))
              .peek(ids -> assertTrue(ids.size() <= 256 && (ids.getFirst() == 1023) == front))
              .flatMapToInt(ids -> ids.stream().skip(front ? 1 : 0).mapToInt(id -> id))
              .toArray();
      assertTrue(own.length > 2 * 256);
      assertArrayEquals(own, read);
    }
  }

  @Test
  void shardsAndWavesFollowTheSize() {
    Preparation open =
        new Preparation(
            List.of("in"),
            Format.AUTO,
            "text",
            Optional.empty(),
            "out",
            false,
            Corpora.demo(),
            true,
            LongTexts.WINDOWS,
            0,
            0);
    assertEquals(List.of(8, 1), List.of(open.sized(0).shards(), open.sized(0).waves()));
    assertEquals(8, open.sized(8 << 18).shards());
    assertEquals(
        List.of(9, 2),
        List.of(open.sized((8 << 18) + 1).shards(), open.sized((8 << 18) + 1).waves()));
    assertEquals(1 << 20, open.sized(Long.MAX_VALUE).shards());
    int waves = 5;
    for (int shard = 0, last = 0; shard < 12; shard++) {
      int wave = RunJob.waveOf(shard, 12, waves);
      assertTrue(wave == last || wave == last + 1, shard + ": " + wave);
      last = wave;
      assertTrue(wave < waves);
    }
  }

  @Test
  void versionsThatAreTooOldAreRefused() throws IOException {
    try (InputStream file = Submit.class.getResourceAsStream("Submit.class")) {
      assertEquals(61, Objects.requireNonNull(file).readNBytes(8)[7], "Java 17 can load it");
    }
    for (String java : List.of("21.0.9", "25", "25.0.2")) {
      BackendException e =
          assertThrows(
              BackendException.class,
              () -> Versions.check("executor 1", Runtime.Version.parse(java), "4.2.0"));
      assertEquals(
          "the driver runs on Java %s: 25.0.3 or newer is needed (JAVA_HOME)".formatted(java),
          Submit.refusal(Runtime.Version.parse(java + "+9-LTS")));
      assertTrue(
          String.valueOf(e.getMessage()).contains("executor 1 runs on Java " + java),
          e.getMessage());
      assertTrue(String.valueOf(e.getMessage()).contains("25.0.3 or newer"), e.getMessage());
    }
    for (String version : List.of("3.5.9", "4.1.3", "4.1.0-preview1")) {
      BackendException e =
          assertThrows(
              BackendException.class,
              () -> Versions.check("the driver", Runtime.Version.parse("25.0.3"), version));
      assertTrue(String.valueOf(e.getMessage()).contains("4.2 or newer"), e.getMessage());
    }
    for (String version : List.of("4.2.0", "4.10.1", "5.0.0-SNAPSHOT")) {
      Versions.check("the driver", Runtime.Version.parse("26"), version);
    }
    for (String java : List.of(Versions.JAVA.toString(), "26-ea+3", "27.0.1")) {
      assertEquals("", Submit.refusal(Runtime.Version.parse(java)));
    }
  }
}
