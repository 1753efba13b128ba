package dev.loupe.spark;

import static org.apache.spark.sql.functions.col;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Backend;
import dev.loupe.corpus.CorpusJobs;
import dev.loupe.corpus.CorpusRun;
import dev.loupe.corpus.Preparation;
import dev.loupe.ops.Precision;
import dev.loupe.spark.Corpora.Heard;
import dev.loupe.spark.Corpora.Sum;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Runs that end before their end: no finished wave is lost, none is done twice. */
class CorpusWavesTest extends CorpusFixture {
  private static Path few; // prepared, for what is done several times
  private static CorpusJobs.Ran fewRead;

  @BeforeAll
  static void readAThousandDocuments() throws Exception {
    Corpora.write(folder.resolve("few.jsonl"), 1000);
    few = folder.resolve("prepared-few");
    jobs.prepare(Corpora.preparation(folder.resolve("few.jsonl"), few), new Heard());
    fewRead = jobs.run(Corpora.run(few, folder.resolve("results")), new Heard());
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

  @Tag("sweep")
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

  @Tag("sweep")
  @Test
  void aDriverThatIsKilledLosesNoFinishedWave() throws Exception {
    Path results = folder.resolve("killed");
    Process driver = driver(results);
    driver.destroyForcibly().waitFor();
    theRestIsDoneAgain(results);
  }

  @Tag("sweep")
  @Test
  void aDriverThatIsTerminatedEndsAfterWhatIsFinished() throws Exception {
    Path results = folder.resolve("terminated");
    Process driver = driver(results);
    driver.destroy(); // SIGTERM
    assertTrue(driver.waitFor(100, TimeUnit.SECONDS), CorpusWavesTest::log);
    assertEquals(143, driver.exitValue(), CorpusWavesTest::log);
    assertTrue(log().contains("the same command goes on from there"), CorpusWavesTest::log);
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
}
