package dev.loupe.bench.kernel;

import dev.loupe.bench.kernel.Device.Roofline;
import dev.loupe.bench.kernel.Measurement.Status;
import dev.loupe.cuda.driver.GpuMemoryException;
import dev.loupe.ops.BackendException;
import dev.loupe.ops.Precision;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.jspecify.annotations.Nullable;

/**
 * Times candidates against each other. On each shape all of them get the same inputs; each is held
 * to double precision before and after; then they take turns, so that a machine's better and worse
 * moments fall on all alike, each time with cold caches, and the device's ceilings are measured
 * before and after that.
 */
public final class KernelComparison {
  /** Samples below which a candidate that was cut off has no times. */
  static final int LEAST_SAMPLES = 5;

  private static final double MOST_COMPILING = 4; // seconds
  private static final int WARM_UP_RUNS = 3;
  private static final double WARM_UP = 0.4; // seconds

  /**
   * How long to measure.
   *
   * @param samples of each candidate on each shape; at least {@value #LEAST_SAMPLES}
   * @param seconds that those of one may take together; a slow one gets fewer, but not below
   *     {@value #LEAST_SAMPLES}
   */
  public record Settings(int samples, double seconds) {
    public Settings {
      if (samples < LEAST_SAMPLES) {
        throw new IllegalArgumentException(
            "%d samples: at least %d show a spread".formatted(samples, LEAST_SAMPLES));
      }
      if (!(seconds > 0)) {
        throw new IllegalArgumentException(
            String.format(Locale.ROOT, "%s seconds: not more than 0", seconds));
      }
    }
  }

  /** Hears from the comparison. */
  public interface Listener {
    /**
     * Called as it goes on.
     *
     * @param part how much is done, 0 to 1
     * @return false to end here and keep what has been measured
     */
    boolean progress(double part);

    /** Called when a shape is done in one precision, or cut off. */
    default void measured(List<Measurement> measurements) {}
  }

  /** A candidate that takes part on one shape. */
  private static final class Entry {
    final Candidate candidate;
    final List<Double> samples = new ArrayList<>();
    Candidate.@Nullable Run run;
    Status status = Status.OK;
    String why = "";
    double error = Double.NaN;
    double total; // microseconds

    Entry(Candidate candidate) {
      this.candidate = candidate;
    }

    void is(Status status, String why) {
      this.status = status;
      this.why = why;
    }
  }

  private final Device device;
  private final Settings settings;
  private final Listener listener;
  private final int groups;
  private int group; // that is measured now
  private boolean ended;

  private KernelComparison(Device device, Settings settings, Listener listener, int groups) {
    this.device = device;
    this.settings = settings;
    this.listener = listener;
    this.groups = groups;
  }

  /** Where candidates come from: {@link Device#candidates}, or {@link Device#sweep}. */
  public interface Ladders {
    List<Candidate> of(Operation operation, Precision precision);
  }

  /**
   * Compares on each shape in each precision.
   *
   * @param ladders whose candidates they are; on that device
   * @param names of the candidates that take part; all if empty
   * @return in the order of shapes, precisions, and the ladder; fewer if the listener ended it
   * @throws IllegalArgumentException if no candidate has one of the names, or there is none
   * @throws BackendException if the device is lost; the listener has heard what was measured
   */
  public static List<Measurement> run(
      Device device,
      Ladders ladders,
      List<Shape> shapes,
      List<Precision> precisions,
      List<String> names,
      Settings settings,
      Listener listener) {
    Operation operation = shapes.getFirst().operation();
    for (Shape shape : shapes) {
      shape.requireIndexable();
    }
    List<List<Candidate>> all = new ArrayList<>();
    for (Precision precision : precisions) {
      List<Candidate> ladder = ladders.of(operation, precision);
      if (!ladder.isEmpty()) {
        all.add(ladder);
      }
    }
    requireNames(operation, all, names);
    KernelComparison comparison =
        new KernelComparison(device, settings, listener, shapes.size() * all.size());
    List<Measurement> measured = new ArrayList<>();
    for (Shape shape : shapes) {
      for (List<Candidate> ladder : all) {
        List<Candidate> wanted =
            ladder.stream().filter(c -> names.isEmpty() || names.contains(c.name())).toList();
        if (!wanted.isEmpty() && !comparison.ended) {
          measured.addAll(comparison.compare(shape, wanted));
        }
        comparison.group++;
      }
    }
    return measured;
  }

  private static void requireNames(
      Operation operation, List<List<Candidate>> ladders, List<String> names) {
    List<String> known =
        ladders.stream().flatMap(List::stream).map(Candidate::name).distinct().toList();
    if (known.isEmpty()) {
      throw new IllegalArgumentException(
          "there is no %s in this precision here".formatted(operation.label()));
    }
    for (String name : names) {
      if (!known.contains(name)) {
        throw new IllegalArgumentException(
            "'%s' is no variant of %s: there are %s"
                .formatted(name, operation.label(), String.join(", ", known)));
      }
    }
  }

  private List<Measurement> compare(Shape shape, List<Candidate> candidates) {
    Problem problem = new Problem(shape, candidates.getFirst().precision());
    List<Entry> entries = candidates.stream().map(Entry::new).toList();
    try {
      long[] checked = problem.checked();
      double[] expected = new double[checked.length];
      for (int i = 0; i < checked.length; i++) {
        expected[i] = problem.expected(checked[i]);
      }
      for (Entry entry : entries) {
        if (news(0)) {
          attempt(entry, () -> begin(entry, problem, checked, expected));
        }
      }
      Roofline before = device.measure(problem.precision());
      try {
        sample(entries);
      } catch (BackendException e) {
        listener.measured(results(problem, entries, before));
        throw e;
      }
      Roofline roofline = before.orBetter(device.measure(problem.precision()));
      for (Entry entry : entries) {
        attempt(entry, () -> check(entry, problem, checked, expected)); // an error that moves
      }
      List<Measurement> measured = results(problem, entries, roofline);
      listener.measured(measured);
      return measured;
    } finally {
      for (Entry entry : entries) {
        if (entry.run != null) {
          entry.run.close();
        }
      }
    }
  }

  /** Asks whether to go on. */
  private boolean news(double partOfGroup) {
    ended = ended || !listener.progress((group + partOfGroup) / groups);
    return !ended;
  }

  /** What fails is the candidate's own matter: the others go on. */
  private static void attempt(Entry entry, Runnable work) {
    if (entry.status != Status.OK) {
      return;
    }
    try {
      work.run();
    } catch (OutOfMemoryError | GpuMemoryException e) {
      entry.is(Status.LEFT_OUT, "no room: " + e.getMessage());
    } catch (IllegalArgumentException e) { // a limit that only the launch knows
      entry.is(Status.LEFT_OUT, String.valueOf(e.getMessage()));
    } catch (BackendException e) { // nobody can go on
      entry.is(Status.WRONG, "fails: " + e.getMessage());
      throw e;
    } catch (RuntimeException e) {
      entry.is(Status.WRONG, "fails: " + e.getMessage());
    }
  }

  private void begin(Entry entry, Problem problem, long[] checked, double[] expected) {
    String refusal = entry.candidate.refuses(problem.shape());
    if (!refusal.isEmpty()) {
      entry.is(Status.LEFT_OUT, refusal);
      return;
    }
    Candidate.Run run = entry.candidate.prepare(problem);
    entry.run = run;
    run.poison();
    run.microseconds();
    check(entry, problem, checked, expected);
    if (entry.status == Status.OK) {
      run.compile((long) (1e9 * Math.min(MOST_COMPILING, settings.seconds())));
    }
    long start = System.nanoTime(); // with what makes caches cold, or a short run would take ages
    for (int runs = 1; keepWarming(runs, (System.nanoTime() - start) / 1e9); runs++) {
      if (entry.status != Status.OK) {
        return;
      }
      run.microseconds();
    }
  }

  /** Some runs, for so long as clocks and caches need; a slow candidate fewer. */
  private boolean keepWarming(int runs, double seconds) {
    double enough = Math.min(WARM_UP, settings.seconds());
    return seconds < enough || (runs < WARM_UP_RUNS && seconds < 3 * enough);
  }

  private static void check(Entry entry, Problem problem, long[] checked, double[] expected) {
    Candidate.Run run = entry.run;
    if (run == null) {
      return;
    }
    int wrong = 0;
    String first = "";
    double worst = 0;
    for (int i = 0; i < checked.length; i++) {
      float actual = run.output(checked[i]);
      double error = Math.abs(actual - expected[i]) / problem.allowed(checked[i], expected[i]);
      if (!(error <= 1)) {
        if (wrong++ == 0) {
          first =
              String.format(
                  Locale.ROOT, "output %d is %.6g, not %.6g", checked[i], actual, expected[i]);
        }
      } else {
        worst = Math.max(worst, error);
      }
    }
    if (wrong > 0) {
      entry.is(
          Status.WRONG, "%d of %d outputs, the first: %s".formatted(wrong, checked.length, first));
    }
    entry.error = Double.isNaN(entry.error) ? worst : Math.max(worst, entry.error);
  }

  private void sample(List<Entry> entries) {
    int rounds = settings.samples();
    for (int round = 0; round < rounds; round++) {
      for (int i = 0; i < entries.size(); i++) {
        Entry entry = entries.get((round + i) % entries.size()); // nobody is always the first
        Candidate.Run run = entry.run;
        if (run == null
            || entry.status != Status.OK
            || (round >= LEAST_SAMPLES && entry.total > 1e6 * settings.seconds())) {
          continue;
        }
        if (!news((round * (double) entries.size() + i) / (rounds * (double) entries.size()))) {
          return;
        }
        attempt(
            entry,
            () -> {
              double time = run.microseconds();
              entry.samples.add(time);
              entry.total += time;
            });
      }
    }
  }

  private static List<Measurement> results(
      Problem problem, List<Entry> entries, Roofline roofline) {
    List<Measurement> results = new ArrayList<>();
    for (Entry entry : entries) {
      boolean ok = entry.status == Status.OK;
      if (ok && entry.samples.size() < LEAST_SAMPLES) {
        continue; // cut off
      }
      Candidate.Run run = entry.run;
      results.add(
          new Measurement(
              problem.shape(),
              entry.candidate.name(),
              entry.candidate.idea(),
              problem.precision(),
              entry.status,
              entry.why,
              entry.error,
              ok ? entry.samples : List.of(),
              entry.candidate.work(problem.shape()),
              roofline,
              run == null ? null : run.resources()));
    }
    return results;
  }
}
