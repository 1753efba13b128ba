package dev.loupe.bench;

import static dev.loupe.bench.Benchmark.Maps.ALL;
import static dev.loupe.bench.Benchmark.Maps.NONE;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.bench.Benchmark.Maps;
import dev.loupe.bench.Benchmark.Phase;
import dev.loupe.bench.Benchmark.Run;
import dev.loupe.bench.Benchmark.Settings;
import dev.loupe.model.ModelInfo;
import dev.loupe.ops.Precision;
import dev.loupe.weights.RandomCheckpoint;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;

/** Runs in turns are sorted by the maps that they kept, and held to those of the same round. */
class MeasuredTest {
  private static final ModelInfo MODEL =
      new ModelInfo(
          "m", Optional.empty(), RandomCheckpoint.Size.TINY.config(), "f32", "cpu", "cpu", 1);

  private static List<Measured> of(List<Maps> maps, List<Run> runs, List<Ceilings> ceilings) {
    Settings settings = new Settings(Phase.DECODE, 20, 6, 3, maps);
    return Measured.of(MODEL, Precision.F32, settings, runs, ceilings);
  }

  /** The machine is twice as slow in the second round, and the third is cut off before ALL. */
  private static final List<Run> RUNS =
      List.of(
          new Run(NONE, 0, 10),
          new Run(ALL, 0, 15),
          new Run(ALL, 1, 40),
          new Run(NONE, 1, 20),
          new Run(NONE, 2, 10));

  @Test
  void mapsAreHeldToTheSameRound() {
    List<Measured> measured = of(List.of(NONE, ALL), RUNS, List.of());
    Measured none = measured.get(0);
    Measured all = measured.get(1);
    assertEquals(2, measured.size());
    assertEquals(List.of(10.0, 20.0, 10.0), none.milliseconds());
    assertEquals(List.of(), none.timesNone());
    assertEquals(List.of(15.0, 40.0), all.milliseconds());
    assertEquals(List.of(1.5, 2.0), all.timesNone());
    assertEquals(
        List.of(),
        of(List.of(ALL), List.of(new Run(ALL, 0, 15)), List.of()).getFirst().timesNone());
  }

  /** A run keeps its own moment. The sixth step reads 25 tokens before it, one of ALL's 26. */
  @Test
  void eachHasItsOwnMomentsAndWork() {
    List<Ceilings> moments =
        List.of(
            new Ceilings(1e9, 1e9),
            new Ceilings(2e9, 1e9),
            new Ceilings(3e9, 1e9),
            new Ceilings(4e9, 1e9),
            new Ceilings(5e9, 1e9));
    List<Measured> measured = of(List.of(NONE, ALL), RUNS, moments);
    assertEquals(
        List.of(moments.get(0), moments.get(3), moments.get(4)), measured.get(0).ceilings());
    assertEquals(List.of(moments.get(1), moments.get(2)), measured.get(1).ceilings());
    Work.Storage f32 = new Work.Storage(4, 4);
    assertEquals(Work.step(MODEL.config(), f32, 20, 6, 1), measured.get(0).work());
    assertEquals(Work.step(MODEL.config(), f32, 20, 7, 1), measured.get(1).work());
    assertTrue(measured.stream().allMatch(each -> each.tokens() == 1));
  }
}
