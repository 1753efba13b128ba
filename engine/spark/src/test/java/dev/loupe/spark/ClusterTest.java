package dev.loupe.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Backend;
import dev.loupe.corpus.CorpusJobs;
import dev.loupe.corpus.CorpusRun;
import dev.loupe.corpus.ModelPlace;
import dev.loupe.ops.Precision;
import dev.loupe.spark.Corpora.Heard;
import dev.loupe.spark.Corpora.Sum;
import dev.loupe.weights.Checkpoint;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.SparkSession;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.api.io.TempDir;

/**
 * The same on a cluster of two workers, each a process with an executor in another, on this
 * machine.
 */
@EnabledOnOs(OS.LINUX) // a folder of links as Spark's home, a script that finds cards
@Timeout(300)
@Tag("sweep")
class ClusterTest {
  @TempDir private static Path folder;

  private static SparkSession spark;
  private static SparkJobs jobs;
  private static Path prepared;
  private static Sum expected;

  @BeforeAll
  static void readOnOneMachineThenStartACluster() throws Exception {
    Corpora.write(folder.resolve("docs.jsonl"), 1000);
    prepared = folder.resolve("prepared");
    try (SparkJobs alone = new SparkJobs(Corpora.local())) {
      alone.prepare(Corpora.preparation(folder.resolve("docs.jsonl"), prepared), new Heard());
      CorpusJobs.Ran ran = alone.run(Corpora.run(prepared, folder.resolve("alone")), new Heard());
      expected = Sum.of(Corpora.local(), ran.folder());
    }
    String folders = home(Path.of(System.getenv("SPARK_HOME"), "jars"));
    spark =
        SparkSession.builder()
            .master("local-cluster[2,1,1024]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.executor.heartbeatInterval", "1s")
            .config("spark.executor.extraClassPath", folders)
            .config("spark.executorEnv.JAVA_HOME", System.getProperty("java.home"))
            .config("spark.executorEnv.SPARK_SCALA_VERSION", "2.13")
            .config(SparkJobs.SEES_FILES, "false")
            .config("spark.worker.resource.gpu.amount", "1")
            .config("spark.worker.resource.gpu.discoveryScript", cards().toString())
            .config("spark.executor.resource.gpu.amount", "1")
            .config("spark.task.resource.gpu.amount", "1")
            .getOrCreate();
    jobs = new SparkJobs(spark);
  }

  @AfterAll
  static void stop() {
    if (jobs != null) {
      jobs.close();
    }
  }

  /** Makes what an installed Spark looks like; what is no jar comes back as a class path. */
  private static String home(Path jars) throws IOException {
    Files.createDirectories(jars);
    StringBuilder folders = new StringBuilder();
    for (String entry : System.getProperty("java.class.path").split(File.pathSeparator, -1)) {
      Path path = Path.of(entry).toAbsolutePath();
      Path link = jars.resolve(path.getFileName());
      if (Files.isDirectory(path)) {
        folders.append(folders.isEmpty() ? "" : File.pathSeparator).append(path);
      } else if (entry.endsWith(".jar")) {
        Files.deleteIfExists(link);
        Files.createSymbolicLink(link, path);
      }
    }
    return folders.toString();
  }

  /** A script that finds one card, with another number each time it is asked. */
  private static Path cards() throws IOException {
    Path script = folder.resolve("find-cards");
    Path taken = Files.createDirectories(folder.resolve("cards"));
    Files.writeString(
        script,
        """
        #!/bin/sh
        for n in 0 1 2 3 4 5 6 7; do
          if mkdir "%s/$n" 2>/dev/null; then
            echo "{\\"name\\": \\"gpu\\", \\"addresses\\": [\\"$n\\"]}"
            exit
          fi
        done
        """
            .formatted(taken));
    assertTrue(script.toFile().setExecutable(true));
    return script;
  }

  private static int others(String folder) {
    String[] names = new File(folder).list();
    return names == null ? 0 : names.length;
  }

  private static Stream<ProcessHandle> executors() {
    return ProcessHandle.current()
        .descendants()
        .filter(
            process ->
                process.info().commandLine().orElse("").contains("CoarseGrainedExecutorBackend"));
  }

  @Test
  void anExecutorThatDiesCostsNothingButTime() throws Exception {
    AtomicLong killed = new AtomicLong();
    Heard heard =
        new Heard(
            done -> {
              if (done > 0 && killed.get() == 0) {
                ProcessHandle victim = executors().findFirst().orElseThrow();
                killed.set(victim.pid());
                victim.destroyForcibly();
              }
              return true;
            });
    CorpusJobs.Ran ran = jobs.run(Corpora.run(prepared, folder.resolve("killed")), heard);
    assertTrue(killed.get() > 0, "no executor was killed");
    assertEquals(expected.rows(), expected.different());
    assertEquals(expected, Sum.of(spark, ran.folder()));
    assertEquals(4, ran.waves());
    assertFalse(heard.notes.isEmpty());
    assertEquals(
        heard.notes.stream().distinct().count(), heard.notes.size(), "said more than once");
  }

  @Test
  void eachExecutorTakesTheCardThatSparkAssigns() throws Exception {
    String sha256;
    try (Checkpoint checkpoint = Checkpoint.open(Corpora.DEMO)) {
      sha256 = checkpoint.sha256();
    }
    OpenModels.Wanted wanted =
        new OpenModels.Wanted(
            OpenModels.Place.of(Corpora.demo()), sha256, Backend.AUTO, Precision.F32, 1, false);
    String meeting = Files.createDirectories(folder.resolve("meeting")).toString();
    @SuppressWarnings("resource") // the session's own
    JavaSparkContext context = new JavaSparkContext(spark.sparkContext());
    List<String> said =
        context
            .parallelize(List.of(1, 2), 2)
            .map(
                task -> {
                  Files.writeString(Path.of(meeting, String.valueOf(task)), "here");
                  for (int i = 0; i < 1000 && others(meeting) < 2; i++) {
                    Thread.sleep(100); // one core each: the other is on the other executor
                  }
                  return OpenModels.open(wanted, TaskContext.get()).says();
                })
            .collect();
    List<String> cards =
        said.stream()
            .map(
                words ->
                    words.replaceAll("^executor \\d+ on [^,]+, (assigned )?card (\\d+).*", "$2"))
            .sorted()
            .toList();
    // 0 and 1, or the number that the one has whose executor was killed
    assertEquals(
        2, cards.stream().filter(card -> card.matches("[0-7]")).distinct().count(), said::toString);
  }

  @Test
  void aModelThatIsNotThereIsSentAlong() throws Exception {
    Path model = Files.createDirectories(folder.resolve("a model"));
    try (Stream<Path> files = Files.list(Corpora.DEMO)) {
      for (Path file : files.collect(Collectors.toList())) {
        Files.copy(file, model.resolve(file.getFileName().toString()));
      }
    }
    CorpusRun plain = Corpora.run(prepared, folder.resolve("sent"));
    CorpusRun sent =
        new CorpusRun(
            plain.prepared(),
            plain.output(),
            new ModelPlace(model.toString(), true, Optional.empty()),
            plain.backend(),
            plain.precision(),
            1,
            plain.tokens(),
            true,
            true,
            false,
            2);
    CorpusJobs.Ran ran = jobs.run(sent, new Heard());
    assertFalse(ran.interrupted());
    assertEquals(expected, Sum.of(spark, ran.folder()));
  }
}
