package dev.loupe.bench;

import static dev.loupe.bench.Benchmark.Maps.ALL;
import static dev.loupe.bench.Benchmark.Maps.NONE;
import static dev.loupe.bench.Benchmark.Maps.ONE;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import dev.loupe.bench.Benchmark.Maps;
import dev.loupe.bench.Benchmark.Phase;
import dev.loupe.bench.Benchmark.Result;
import dev.loupe.bench.Benchmark.Run;
import dev.loupe.bench.Benchmark.Settings;
import dev.loupe.ops.Precision;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
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
                new Settings(phase, 20, steps, 3, List.of(maps)),
                (run, part) -> progress.add(run + part));
        assertEquals(20, result.prompt().size());
        assertTrue(result.prompt().stream().noneMatch(loupe.tokenizer()::isSpecial));
        List<Run> runs = result.runs();
        assertEquals(3, runs.size());
        assertTrue(runs.stream().allMatch(BenchmarkTest::plausible), runs.toString());
        assertEquals(progress.stream().sorted().toList(), progress, "forward only");
        assertTrue(progress.size() >= 5 && progress.getLast() == 5, progress.toString());
      }
    }
  }

  private static boolean plausible(Run run) {
    return run.milliseconds() > 0 && run.milliseconds() < 60_000;
  }

  /** Two rounds warm up; then each kind has its turn in each round, another one first each time. */
  @Test
  void kindsOfMapsTakeTurns() {
    List<Maps> all = List.of(Maps.values());
    List<Integer> pauses = new ArrayList<>();
    List<Integer> seen = new ArrayList<>();
    Settings settings = new Settings(Phase.DECODE, 20, 2, 4, List.of(ALL, NONE, ONE, ALL));
    assertEquals(all, settings.maps());
    Result result =
        Benchmark.run(
            loupe,
            settings,
            new Benchmark.Listener() {
              @Override
              public boolean progress(int run, double part) {
                seen.add(run);
                return true;
              }

              @Override
              public void pause() {
                pauses.add(seen.getLast());
              }
            });
    assertEquals(IntStream.range(0, 18).boxed().toList(), seen.stream().distinct().toList());
    assertEquals(IntStream.range(5, 18).boxed().toList(), pauses, "around every run");
    List<Run> runs = result.runs();
    assertEquals(12, runs.size());
    for (int round = 0; round < 4; round++) {
      List<Run> turn = runs.subList(3 * round, 3 * round + 3);
      int of = round;
      assertTrue(turn.stream().allMatch(run -> run.round() == of), turn.toString());
      assertEquals(all, turn.stream().map(Run::maps).sorted().toList());
    }
    List<Maps> first = IntStream.range(0, 3).mapToObj(i -> runs.get(3 * i).maps()).toList();
    assertEquals(all, first.stream().sorted().toList(), "not always the same one is first");
  }

  /** In the middle of a round: the kinds have not as many runs then. */
  @Test
  void aRoundThatWasCutOff() {
    Settings settings = new Settings(Phase.PREFILL, 20, 0, 9, List.of(Maps.values()));
    Result result = Benchmark.run(loupe, settings, (run, part) -> run + part < 6 + 4.5);
    assertEquals(4, result.runs().size());
    List<Measured> measured =
        Measured.of(loupe.info(), Precision.F32, settings, result.runs(), List.of());
    assertEquals(List.of(NONE, ONE, ALL), measured.stream().map(Measured::maps).toList());
    assertEquals(4, measured.stream().mapToInt(each -> each.milliseconds().size()).sum());
    for (Measured each : measured) {
      // of the second round only one kind is there, so nothing of it can be compared
      assertEquals(each.maps() == NONE ? 0 : 1, each.timesNone().size(), each.toString());
    }
    Result little = Benchmark.run(loupe, settings, (run, part) -> run + part < 6 + 1.5);
    assertEquals(1, little.runs().size());
    assertEquals(
        1, Measured.of(loupe.info(), Precision.F32, settings, little.runs(), List.of()).size());
  }

  @Test
  void memoryWhileItWarmsUp() {
    Settings settings = new Settings(Phase.PREFILL, 20, 0, 1, List.of(NONE));
    Memory memory = Benchmark.run(loupe, settings, (run, part) -> true).memory();
    assertEquals(Files.exists(Path.of("/proc/self/status")), memory.peak().isPresent());
    assertTrue(memory.peak().orElse(1L << 40) > memory.heap(), memory.toString());
    assertTrue(memory.heap() > 1 << 20, memory.toString());
    assertTrue(memory.card().isEmpty());
  }

  @Test
  void whatIsMeasuredIsKeptWhenItEnds() {
    for (Phase phase : Phase.values()) {
      Settings settings = new Settings(phase, 20, phase == Phase.DECODE ? 6 : 0, 50, List.of(NONE));
      assertEquals(2, runsUntil(4.5, settings));
      assertEquals(0, runsUntil(1.5, settings));
    }
  }

  private static int runsUntil(double end, Settings settings) {
    return Benchmark.run(loupe, settings, (run, part) -> run + part < end).runs().size();
  }

  @Test
  void passesAreTheStepsAfterTheFirstToken() {
    Settings decode = new Settings(Phase.DECODE, 20, 6, 1, List.of(NONE, ALL));
    assertEquals(6, decode.passes(NONE));
    assertEquals(7, decode.passes(ALL));
    assertEquals(1, new Settings(Phase.PREFILL, 20, 0, 1, List.of(ALL)).passes(ALL));
  }

  @Test
  void refusesWhatDoesNotFit() {
    refused(
        new Settings(Phase.PREFILL, 129, 0, 1, List.of(NONE)), "129 prompt tokens do not", "128");
    refused(
        new Settings(Phase.DECODE, 100, 28, 1, List.of(NONE)), "100 prompt tokens and 29", "128");
    Settings fits = new Settings(Phase.DECODE, 100, 27, 1, List.of(NONE));
    assertEquals(1, runsUntil(100, fits));
    assertThrows(
        IllegalArgumentException.class, () -> new Settings(Phase.DECODE, 0, 1, 1, List.of(NONE)));
    assertThrows(
        IllegalArgumentException.class, () -> new Settings(Phase.DECODE, 1, 0, 1, List.of(NONE)));
    assertThrows(
        IllegalArgumentException.class, () -> new Settings(Phase.PREFILL, 1, 0, 0, List.of(NONE)));
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
