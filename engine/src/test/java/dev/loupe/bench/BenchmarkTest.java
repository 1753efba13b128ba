package dev.loupe.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.bench.Benchmark.Maps;
import dev.loupe.bench.Benchmark.Phase;
import dev.loupe.bench.Benchmark.Result;
import dev.loupe.bench.Benchmark.Settings;
import dev.loupe.cli.TinyModel;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What is run; how long it takes is nobody's promise. */
class BenchmarkTest {
  @TempDir static Path folder;
  private static Loupe loupe;

  @BeforeAll
  static void open() throws Exception {
    loupe = Loupe.open(TinyModel.in(folder).folder(), Options.defaults().backend(Backend.CPU));
  }

  @AfterAll
  static void close() {
    loupe.close();
  }

  @Test
  void everyRunIsTimedButThoseThatWarmUp() {
    for (Phase phase : Phase.values()) {
      for (Maps maps : Maps.values()) {
        int steps = phase == Phase.DECODE ? 6 : 0;
        List<Double> progress = new ArrayList<>();
        Result result =
            Benchmark.run(
                loupe,
                new Settings(phase, 20, steps, 3, maps),
                (run, part) -> progress.add(run + part));
        assertEquals(20, result.prompt().size());
        assertTrue(result.prompt().stream().noneMatch(loupe.tokenizer()::isSpecial));
        List<Double> times = result.milliseconds();
        assertEquals(3, times.size());
        assertTrue(times.stream().allMatch(ms -> ms > 0 && ms < 60_000), times.toString());
        assertEquals(progress.stream().sorted().toList(), progress, "forward only");
        assertTrue(progress.size() >= 5 && progress.getLast() == 5, progress.toString());
      }
    }
  }

  @Test
  void whatIsMeasuredIsKeptWhenItEnds() {
    for (Phase phase : Phase.values()) {
      Settings settings = new Settings(phase, 20, phase == Phase.DECODE ? 6 : 0, 50, Maps.NONE);
      assertEquals(2, runsUntil(4.5, settings));
      assertEquals(0, runsUntil(1.5, settings));
    }
  }

  private static int runsUntil(double end, Settings settings) {
    return Benchmark.run(loupe, settings, (run, part) -> run + part < end).milliseconds().size();
  }

  @Test
  void passesAreTheStepsAfterTheFirstToken() {
    assertEquals(6, new Settings(Phase.DECODE, 20, 6, 1, Maps.NONE).passes());
    assertEquals(7, new Settings(Phase.DECODE, 20, 6, 1, Maps.ALL).passes());
    assertEquals(1, new Settings(Phase.PREFILL, 20, 0, 1, Maps.ALL).passes());
  }

  @Test
  void refusesWhatDoesNotFit() {
    refused(new Settings(Phase.PREFILL, 129, 0, 1, Maps.NONE), "129 prompt tokens do not", "128");
    refused(new Settings(Phase.DECODE, 100, 28, 1, Maps.NONE), "100 prompt tokens and 29", "128");
    Settings fits = new Settings(Phase.DECODE, 100, 27, 1, Maps.NONE);
    assertEquals(1, runsUntil(100, fits));
    assertThrows(
        IllegalArgumentException.class, () -> new Settings(Phase.DECODE, 0, 1, 1, Maps.NONE));
    assertThrows(
        IllegalArgumentException.class, () -> new Settings(Phase.DECODE, 1, 0, 1, Maps.NONE));
    assertThrows(
        IllegalArgumentException.class, () -> new Settings(Phase.PREFILL, 1, 0, 0, Maps.NONE));
  }

  private static void refused(Settings settings, String... words) {
    String message =
        assertThrows(
                IllegalArgumentException.class,
                () -> Benchmark.run(loupe, settings, (run, part) -> true))
            .toString();
    for (String word : words) {
      assertTrue(message.contains(word), message);
    }
  }
}
