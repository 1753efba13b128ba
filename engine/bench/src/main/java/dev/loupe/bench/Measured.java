package dev.loupe.bench;

import dev.loupe.bench.Benchmark.Maps;
import dev.loupe.bench.Benchmark.Phase;
import dev.loupe.bench.Benchmark.Run;
import dev.loupe.bench.Benchmark.Settings;
import dev.loupe.model.ModelInfo;
import dev.loupe.ops.Precision;
import dev.loupe.weights.config.Gpt2Config;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.ToDoubleFunction;
import java.util.stream.Collectors;

/**
 * What was measured while the same maps were kept. A pass is a prompt or one step of decoding.
 *
 * @param tokens of a pass
 * @param milliseconds of a pass in each run; at least one
 * @param timesNone of each round, how many times as long it took as without maps; empty where that
 *     was not measured, or is this
 * @param work of a pass
 * @param ceilings for each run the best just before and after it, since a shared machine has better
 *     and worse moments; none for a GPU or without the Vector API
 */
record Measured(
    Maps maps,
    int tokens,
    List<Double> milliseconds,
    List<Double> timesNone,
    Work work,
    List<Ceilings> ceilings) {
  static final double GIGA = 1e9;

  Measured {
    milliseconds = List.copyOf(milliseconds);
    timesNone = List.copyOf(timesNone);
    ceilings = List.copyOf(ceilings);
  }

  /**
   * Sorts runs by the maps that they kept; leaves out those that no run kept.
   *
   * @param ceilings for each run, or none
   */
  static List<Measured> of(
      ModelInfo model,
      Precision precision,
      Settings settings,
      List<Run> runs,
      List<Ceilings> ceilings) {
    Map<Integer, Double> none =
        runs.stream()
            .filter(run -> run.maps() == Maps.NONE)
            .collect(Collectors.toMap(Run::round, Run::milliseconds));
    int tokens = settings.phase() == Phase.PREFILL ? settings.promptTokens() : settings.texts();
    List<Measured> all = new ArrayList<>();
    for (Maps maps : settings.maps()) {
      List<Double> times = new ArrayList<>();
      List<Double> ratios = new ArrayList<>();
      List<Ceilings> best = new ArrayList<>();
      for (int i = 0; i < runs.size(); i++) {
        Run run = runs.get(i);
        if (run.maps() != maps) {
          continue;
        }
        times.add(run.milliseconds());
        Double without = none.get(run.round());
        if (without != null && maps != Maps.NONE) {
          ratios.add(run.milliseconds() / without);
        }
        if (!ceilings.isEmpty()) {
          best.add(ceilings.get(i));
        }
      }
      if (!times.isEmpty()) {
        Work work = work(model, precision, settings, maps);
        all.add(new Measured(maps, tokens, times, ratios, work, best));
      }
    }
    return all;
  }

  private static Work work(ModelInfo model, Precision precision, Settings settings, Maps maps) {
    Gpt2Config config = model.config();
    Work.Storage storage = Work.Storage.of(model, precision);
    return settings.phase() == Phase.PREFILL
        ? Work.pass(config, storage, 0, settings.promptTokens())
        : Work.step(
            config, storage, settings.promptTokens(), settings.passes(maps), settings.texts());
  }

  Spread times() {
    return Spread.of(milliseconds);
  }

  Spread tokensPerSecond() {
    return Spread.of(milliseconds.stream().map(ms -> tokens / ms * 1000).toList());
  }

  /** By the median, in 1e9. */
  double gigabytesPerSecond() {
    return work.bytes() / times().median() * 1000 / GIGA;
  }

  /** By the median, in 1e9; a multiply-add is two operations. */
  double gigaflopPerSecond() {
    return 2 * work.multiplyAdds() / times().median() * 1000 / GIGA;
  }

  double percentOfRead() {
    return percent(work.bytes(), Ceilings::readBytes);
  }

  double percentOfMultiplyAdds() {
    return percent(work.multiplyAdds(), Ceilings::multiplyAdds);
  }

  /** The median over the runs of what each had of its ceiling. */
  private double percent(double work, ToDoubleFunction<Ceilings> ceiling) {
    List<Double> all = new ArrayList<>();
    for (int i = 0; i < milliseconds.size(); i++) {
      double rate = work / milliseconds.get(i) * 1000;
      all.add(100 * rate / ceiling.applyAsDouble(ceilings.get(i)));
    }
    return Spread.of(all).median();
  }

  /** The median of what the machine read at best, in 1e9 bytes a second. */
  double readCeiling() {
    return ceiling(Ceilings::readBytes) / GIGA;
  }

  /** The median of what it multiplied and added at best, in 1e9 operations a second. */
  double flopCeiling() {
    return 2 * ceiling(Ceilings::multiplyAdds) / GIGA;
  }

  private double ceiling(ToDoubleFunction<Ceilings> ceiling) {
    return Spread.of(ceilings.stream().map(ceiling::applyAsDouble).toList()).median();
  }
}
