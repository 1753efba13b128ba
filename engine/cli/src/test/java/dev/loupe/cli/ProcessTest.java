package dev.loupe.cli;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.cli.terminal.ExitCode;
import dev.loupe.cli.terminal.Interrupt;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.model.Golden;
import dev.loupe.weights.io.AtomicFile;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What only a process of its own can show: signals, full memory, broken pipes. */
@Timeout(240)
class ProcessTest {
  @TempDir Path folder;
  private Child child;

  @BeforeEach
  void child() {
    child = new Child(folder);
  }

  /** One that a test has given up must not go on beside the others. */
  @AfterEach
  void nothingGoesOn() {
    ProcessHandle.current().children().forEach(ProcessHandle::destroyForcibly);
  }

  private Path made() throws IOException {
    return Files.createDirectory(folder.resolve("made"));
  }

  /** Standard output of one that is ended by a signal once so many percent are done. */
  private String ended(String signal, int percent, Object... args) throws Exception {
    return ended(List.of(), signal, percent, args);
  }

  private String ended(List<String> flags, String signal, int percent, Object... args)
      throws Exception {
    Child.assumeIsHeard(signal);
    Process process = child.start(Child.java(Child.AtTerminal.class, flags, args));
    child.awaitProgress(process, percent);
    Child.signal(process, signal);
    String out = new String(process.getInputStream().readAllBytes(), UTF_8);
    assertTrue(process.waitFor(100, TimeUnit.SECONDS));
    assertEquals(Child.exitCode(signal), process.exitValue(), child.said());
    return out;
  }

  @Tag("sweep")
  @Test
  void aTerminationEndsAMeasurementAndKeepsWhatItHas() throws Exception {
    String[] args = {
      "bench", "prefill", "--backend", "cpu", "--prompt-tokens", "4", "--runs", "200", "--json"
    };
    JsonObject report = JsonParser.parseString(ended("TERM", 2, (Object[]) args)).getAsJsonObject();
    int runs = report.getAsJsonArray("ms").size();
    assertTrue(runs >= 1 && runs < 200, runs + " runs");
    assertEquals("", child.saidAtLast());
  }

  @Tag("sweep")
  @Test
  void anInterruptEndsALookAtHeadsAndKeepsWhatItRead() throws Exception {
    Path text = folder.resolve("text");
    String heldOut = Files.readString(Golden.TEST_DATA.resolve("golden/heldout/text.txt"));
    Files.writeString(text, heldOut.repeat(20)); // a minute's worth
    String out = ended("INT", 3, "heads", "--backend", "cpu", "--file", text, "--json");
    JsonObject read = JsonParser.parseString(out).getAsJsonObject().getAsJsonObject("text");
    int windows = read.get("windows_read").getAsInt();
    int all = read.get("windows").getAsInt();
    assertTrue(windows > 0 && windows < all, read.toString());
    assertEquals(256 * windows, read.get("tokens").getAsInt());
    assertEquals(
        "[interrupted: %d of %d windows of the text were read]\n".formatted(windows, all),
        child.saidAtLast());
  }

  @Tag("sweep")
  @Test
  void aTerminationEndsAComparisonAndKeepsWhatItHas() throws Exception {
    Path json = folder.resolve("report.json");
    ended(
        "TERM",
        2,
        "bench",
        "gelu",
        "--backend",
        "cpu",
        "--threads",
        1,
        "--shapes",
        "R=64,C=72,73,74",
        "--variants",
        "naive,plain",
        "--samples",
        1000,
        "--seconds",
        100,
        "--json=" + json);
    JsonObject report = JsonParser.parseString(Files.readString(json)).getAsJsonObject();
    assertTrue(report.get("interrupted").getAsBoolean());
    assertTrue(report.getAsJsonArray("results").size() > 0);
    assertEquals("", child.saidAtLast());
  }

  @ParameterizedTest
  @ValueSource(strings = {"INT", "TERM", "HUP"})
  void aSignalEndsTheTextAndKeepsItsMaps(String signal) throws Exception {
    Child.assumeIsHeard(signal);
    Path made = made();
    Process process =
        child.start(
            Child.java(
                Main.class,
                List.of(),
                "generate",
                "ROMEO:",
                "-n",
                4000,
                "--overflow",
                "slide",
                "--layers",
                2,
                "--heads",
                1,
                "--attention",
                made.resolve("a.json"),
                "--attention",
                made.resolve("a.npz")));
    child.interrupt(process, made, signal);
    assertTrue(child.said().contains("a.npz"), child.said());
  }

  /** Without compiled code, what is over at once takes long enough to be ended. */
  private static final List<String> SLOW = List.of("-Xint");

  /** Vectors take some ten times as long by the first compiler alone, and minutes without any. */
  private static final List<String> SLOW_VECTORS = List.of("-XX:TieredStopAtLevel=1");

  @Test
  void aTerminationWhileATextIsReadLeavesFilesAsTheyWere() throws Exception {
    Path made = made();
    Path whole = Files.writeString(made.resolve("a.json"), "of an earlier run");
    String text = Files.readString(Golden.TEST_DATA.resolve("golden/heldout/text.txt"));
    String out =
        ended(
            SLOW_VECTORS,
            "TERM",
            10,
            "attention",
            "--backend",
            "cpu",
            text.substring(0, 500),
            "--attention",
            whole,
            "--attention",
            made.resolve("a.npz"),
            "--stats",
            made.resolve("s.csv"));
    assertEquals("", out);
    assertEquals(List.of("a.json"), Ran.names(made));
    assertEquals("of an earlier run", Files.readString(whole));
  }

  @ParameterizedTest
  @ValueSource(strings = {"m.gguf", "m.safetensors", "folder"})
  void aTerminationWhileAModelIsConvertedLeavesNothing(String name) throws Exception {
    Path made = made();
    Path other = Files.writeString(made.resolve("other"), "whole");
    Path out = made.resolve(name);
    ended(SLOW, "TERM", 10, "weights", "convert", Golden.DEMO_MODEL, out, "--dtype", "f16");
    assertEquals(List.of("other"), Ran.names(made));
    assertEquals("whole", Files.readString(other));
    assertTrue(child.saidAtLast().contains(out + " was not made"), child.said());
  }

  /** What the child of the next test runs: work that hears a signal and doesn't end. */
  public static final class Stubborn {
    private Stubborn() {}

    @SuppressWarnings("BusyWait")
    public static void main(String[] args) throws Exception {
      try (Interrupt interrupt = new Interrupt(Terminal.system());
          AtomicFile _ = AtomicFile.create(Path.of(args[0]))) {
        interrupt.onlyAsk();
        System.out.write('r');
        System.out.flush();
        while (!interrupt.asked()) {
          Thread.sleep(5);
        }
        System.out.write('a');
        System.out.flush();
        Thread.sleep(50_000);
      }
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"INT", "TERM"})
  void aSecondInterruptEndsAtOnceAndLeavesNoTemporaryFile(String first) throws Exception {
    Child.assumeIsHeard("INT");
    Child.assumeIsHeard(first);
    Path made = made();
    Process process =
        child.start(Child.java(Stubborn.class, List.of(), made.resolve("never-finished")));
    assertEquals('r', process.getInputStream().read());
    assertEquals(1, Ran.names(made).size(), "begun");
    Child.signal(process, first);
    assertEquals('a', process.getInputStream().read(), "the first one only asks");
    if (first.equals("TERM")) { // timeout sends it twice
      Child.signal(process, first);
    }
    assertFalse(process.waitFor(400, TimeUnit.MILLISECONDS), "and does not end it");
    Child.signal(process, "INT");
    assertTrue(process.waitFor(100, TimeUnit.SECONDS));
    assertEquals(Child.exitCode(first), process.exitValue());
    assertEquals(List.of(), Ran.names(made));
  }

  @Test
  void fullMemoryIsSaidInOneSentence() throws Exception {
    Path made = made();
    List<String> small = List.of("-Xmx24m", "-XX:MaxDirectMemorySize=8m");
    Process process =
        child.start(
            Child.java(
                Main.class,
                small,
                "generate",
                "x",
                "-n",
                250,
                "--samples",
                40,
                "--logprobs",
                100,
                "--json",
                "--attention",
                made.resolve("a.npz")));
    String out = new String(process.getInputStream().readAllBytes(), UTF_8);
    assertTrue(process.waitFor(100, TimeUnit.SECONDS));
    new Ran(process.exitValue(), out, child.said())
        .refused(ExitCode.OUT_OF_MEMORY, "out of memory", "use a smaller model");
    assertEquals(List.of(), Ran.names(made));
  }

  @Test
  void aReaderThatHasEnoughEndsTheRunQuietly() throws Exception {
    StringBuilder line = new StringBuilder();
    for (String word :
        Child.java(Main.class, List.of(), "generate", "x", "-n", 4000, "--overflow", "slide")) {
      line.append('\'').append(word.replace("'", "'\\''")).append("' ");
    }
    Process process =
        child.start(List.of("bash", "-c", line + "| head -c 1; exit ${PIPESTATUS[0]}"));
    assertEquals(1, process.getInputStream().readAllBytes().length);
    assertTrue(process.waitFor(100, TimeUnit.SECONDS));
    assertEquals(0, process.exitValue());
    assertEquals("", child.said());
  }
}
