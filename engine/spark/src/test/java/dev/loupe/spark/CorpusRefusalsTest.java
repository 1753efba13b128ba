package dev.loupe.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.loupe.Backend;
import dev.loupe.corpus.CorpusRun;
import dev.loupe.corpus.ModelPlace;
import dev.loupe.ops.BackendException;
import dev.loupe.ops.Precision;
import dev.loupe.spark.Corpora.Heard;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import org.apache.spark.SparkException;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Jobs that cannot be done are refused with the reason, before anything is written. */
class CorpusRefusalsTest extends CorpusFixture {
  private static Path prepared;

  @BeforeAll
  static void prepareDocuments() throws Exception {
    Corpora.write(folder.resolve("docs.jsonl"), 100);
    prepared = folder.resolve("prepared");
    jobs.prepare(Corpora.preparation(folder.resolve("docs.jsonl"), prepared), new Heard());
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
