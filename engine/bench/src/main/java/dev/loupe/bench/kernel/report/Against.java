package dev.loupe.bench.kernel.report;

import dev.loupe.bench.Spread;
import dev.loupe.bench.kernel.Measurement;
import dev.loupe.bench.kernel.Measurement.Status;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * A run beside an older one: the same variant on the same shape in the same precision.
 *
 * <p>Where they do not {@linkplain Measurement#differs differ}, that is where their ranges from p10
 * to p90 have a value in common, or samples are few, the difference is within noise. Anyone can
 * check that against the ranges that the tables print. It asks for more than a test of the samples
 * would (Mann and Whitney, Annals of Mathematical Statistics 18, 1947), and is meant to: such a
 * test takes the samples for independent, but those of one run share its moment of the machine, its
 * memory layout and what its compiler did, so that with enough samples it finds a difference
 * between any two runs (Kalibera and Jones, Rigorous benchmarking in reasonable time, ISMM 2013).
 * Ranges that are apart are the rule of Georges, Buytaert and Eeckhout, Statistically rigorous Java
 * performance evaluation, OOPSLA 2007, there of confidence intervals, which are narrower. Of two
 * runs that differ by chance alone, with independent samples, it is wrong about in 2 of 100 cases
 * with five samples each, and in none of 100,000 with thirty.
 *
 * <p>A whole machine is faster at one time than at another: two runs of a shared one, two minutes
 * apart, found its ceilings 4% apart, and with them six of twenty kernels. So ranges that are not
 * apart once each is measured by the ceiling of its own run are said to differ like the machine.
 */
record Against(KernelReport now, KernelReport then) {
  /** What the spread allows to say. */
  enum Verdict {
    /** The older run does not have it. */
    NEW,
    WITHIN_NOISE,
    /** Apart from then, but no more than the machine's own ceilings. */
    LIKE_THE_MACHINE,
    FASTER,
    SLOWER,
    /** One of both has no times, or times of an emulated card. */
    NOT_COMPARED
  }

  /**
   * A measurement beside its older self.
   *
   * @param speed how many times as fast as then, by the medians; NaN unless both have times
   * @param words the verdict for people: {@code 12% faster}
   */
  record Row(
      Measurement now, @Nullable Measurement then, double speed, Verdict verdict, String words) {}

  /** One for each measurement of the new run, in its order. */
  List<Row> rows() {
    List<Row> rows = new ArrayList<>();
    for (Measurement each : now.measurements()) {
      rows.add(row(each, find(then.measurements(), each)));
    }
    return rows;
  }

  private static @Nullable Measurement find(List<Measurement> all, Measurement like) {
    for (Measurement each : all) {
      if (each.shape().equals(like.shape())
          && each.variant().equals(like.variant())
          && each.precision() == like.precision()) {
        return each;
      }
    }
    return null;
  }

  private Row row(Measurement m, @Nullable Measurement old) {
    if (old == null) {
      return new Row(m, null, Double.NaN, Verdict.NEW, "new");
    }
    if (m.status() != Status.OK || old.status() != Status.OK) {
      String words =
          m.status() == old.status()
              ? "still " + Group.small(m.status())
              : m.status() == Status.OK
                  ? Group.small(old.status()) + " then"
                  : Group.small(m.status()) + " now";
      return new Row(m, old, Double.NaN, Verdict.NOT_COMPARED, words);
    }
    if (now.emulated() || then.emulated()) {
      return new Row(m, old, Double.NaN, Verdict.NOT_COMPARED, "emulated");
    }
    double speed = old.times().median() / m.times().median();
    if (!m.differs(old)) {
      return new Row(m, old, speed, Verdict.WITHIN_NOISE, "within noise");
    }
    if (!m.differs(atSpeedOf(m, old))) {
      return new Row(m, old, speed, Verdict.LIKE_THE_MACHINE, "like the machine");
    }
    return speed > 1 // of runs in the same time: twice as fast is 100% faster
        ? new Row(m, old, speed, Verdict.FASTER, Unit.percent(speed - 1) + " faster")
        : new Row(m, old, speed, Verdict.SLOWER, Unit.percent(1 - speed) + " slower");
  }

  /** An older measurement as it had been if the machine had been as fast then as it is now. */
  private static Measurement atSpeedOf(Measurement now, Measurement then) {
    double ratio = drift(now, then);
    if (!Double.isFinite(ratio)) {
      return then; // without ceilings
    }
    return then.with(
        then.microseconds().stream().map(time -> time / ratio).toList(), then.roofline());
  }

  /** How many times as much the machine could do of this work at best as it could then. */
  private static double drift(Measurement now, Measurement then) {
    double intensity = now.work().intensity();
    return now.roofline().operationsPerSecond(intensity)
        / then.roofline().operationsPerSecond(intensity);
  }

  /** What else differs between both, in sentences; empty if they are of the same kind. */
  List<String> differences() {
    List<String> all = new ArrayList<>();
    differ(all, "backend", then.backend(), now.backend());
    differ(all, "device", then.device(), now.device());
    differ(all, "processor", then.machine().cpu(), now.machine().cpu());
    differ(all, "number of processors", then.machine().processors(), now.machine().processors());
    differ(all, "number of threads", then.threads(), now.threads());
    differ(all, "width of vectors", then.machine().vectorBits(), now.machine().vectorBits());
    differ(all, "Java", then.machine().java(), now.machine().java());
    double drift = drift();
    if (Math.abs(drift - 1) >= 0.01) {
      all.add(
          "At best, %s does %s %s of this work than then (median)."
              .formatted(
                  now.place(), Unit.percent(Math.abs(drift - 1)), drift > 1 ? "more" : "less"));
    }
    if (now.emulated() || then.emulated()) {
      all.add("Times of an emulated card are not compared.");
    }
    long gone =
        then.measurements().stream().filter(m -> find(now.measurements(), m) == null).count();
    if (gone > 0) {
      all.add(
          "%s of the %s results then are not in this run."
              .formatted(gone, then.measurements().size()));
    }
    return all;
  }

  /** The median of what each measurement says of it; NaN if none does. */
  private double drift() {
    List<Double> all = new ArrayList<>();
    for (Measurement each : now.measurements()) {
      Measurement old = find(then.measurements(), each);
      if (old != null && Double.isFinite(drift(each, old))) {
        all.add(drift(each, old));
      }
    }
    return all.isEmpty() ? Double.NaN : Spread.of(all).median();
  }

  private static void differ(List<String> all, String what, Object then, Object now) {
    if (!Objects.equals(then, now)) {
      all.add("Another %s: %s then, %s now.".formatted(what, then, now));
    }
  }

  /** Its heading. */
  String title() {
    return "Against the run of " + KernelReport.time(then.started());
  }

  /** How many are what, in a sentence; what became wrong is said too. */
  String summary() {
    Map<String, Integer> counts = new LinkedHashMap<>();
    for (Row row : rows()) {
      boolean compared = row.verdict() != Verdict.NOT_COMPARED;
      counts.merge(compared ? Group.small(row.verdict()) : row.words(), 1, Integer::sum);
    }
    return counts.isEmpty()
        ? "Nothing to compare."
        : counts.entrySet().stream()
            .map(e -> e.getValue() + " " + e.getKey())
            .collect(Collectors.joining(", ", "", "."));
  }
}
