package dev.loupe.bench.kernel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.BackendException;
import dev.loupe.bench.kernel.KernelComparison.Settings;
import dev.loupe.bench.kernel.Measurement.Status;
import dev.loupe.ops.Precision;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntPredicate;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;

/** Candidates that only pretend to compute. */
class KernelComparisonTest {
  private static final Shape SHAPE = Shape.of(Operation.GELU, 2, 3);
  private static final Settings TEN = new Settings(10, 0.02);

  private final List<String> log = new ArrayList<>(); // of what candidates are asked for
  private final List<Candidate> ladder = new ArrayList<>();
  private int rooflines;

  /** One whose time is said, and whose outputs are right as long as it is told so. */
  private class Pretender implements Candidate, Candidate.Run {
    private final String name;
    private final double time; // microseconds
    IntPredicate right = runs -> true;
    @Nullable RuntimeException thrown;
    int throwsAt; // run
    String refusal = "";
    private @Nullable Problem problem;
    boolean written;
    private int runs;
    private boolean closed;

    Pretender(String name, double time) {
      this.name = name;
      this.time = time;
      ladder.add(this);
    }

    @Override
    public String name() {
      return name;
    }

    @Override
    public String idea() {
      return "of " + name;
    }

    @Override
    public Precision precision() {
      return Precision.F32;
    }

    @Override
    public String refuses(Shape shape) {
      return refusal;
    }

    @Override
    public Problem.Work work(Shape shape) {
      return new Problem.Work(8, 16);
    }

    @Override
    public Run prepare(Problem problem) {
      this.problem = problem;
      closed = false;
      return this;
    }

    @Override
    public void compile(long nanos) {
      log.add(name + " compile");
    }

    @Override
    public void poison() {
      written = false;
    }

    @Override
    public double microseconds() {
      runs++;
      if (thrown != null && runs == throwsAt) {
        throw thrown;
      }
      log.add(name);
      LockSupport.parkNanos(100_000); // or there were a million while it warms up
      written = true;
      return time;
    }

    @Override
    public float output(long index) {
      assertFalse(closed);
      if (!written || problem == null) {
        return Float.NaN;
      }
      return (float) problem.expected(index) + (right.test(runs) || index != 4 ? 0 : 0.5f);
    }

    @Override
    public @Nullable Resources resources() {
      return new Resources(1, 2, 3, 0.5);
    }

    @Override
    public void close() {
      assertFalse(closed, name + " is closed twice");
      closed = true;
    }
  }

  private final class Pretended implements Device {
    @Override
    public String backend() {
      return "pretended";
    }

    @Override
    public String name() {
      return "pretended";
    }

    @Override
    public boolean emulated() {
      return false;
    }

    @Override
    public List<Candidate> candidates(Operation operation, Precision precision) {
      return precision == Precision.F32 ? ladder : List.of();
    }

    @Override
    public List<Shape> usualShapes(Operation operation) {
      return List.of(SHAPE);
    }

    @Override
    public Roofline measure(Precision precision) {
      log.add("roofline");
      rooflines++;
      return rooflines % 2 == 1 ? new Roofline(4e6, 1e6) : new Roofline(3e6, 2e6);
    }

    @Override
    public void close() {}
  }

  private List<Measurement> run(
      Settings settings, KernelComparison.Listener listener, String... names) {
    List<Measurement> measured =
        KernelComparison.run(
            new Pretended(),
            new Pretended()::candidates,
            List.of(SHAPE),
            List.of(Precision.F32, Precision.BF16),
            Arrays.asList(names),
            settings,
            listener);
    for (Candidate each : ladder) {
      Pretender pretender = (Pretender) each;
      assertEquals(pretender.problem != null, pretender.closed, pretender.name);
    }
    return measured;
  }

  private List<Measurement> run(Settings settings) {
    return run(settings, part -> true);
  }

  @Test
  void timesThatAreSaid() {
    new Pretender("a", 2);
    new Pretender("b", 4);
    List<Measurement> measured = run(TEN);
    assertEquals(List.of("a", "b"), measured.stream().map(Measurement::variant).toList());
    Measurement a = measured.getFirst();
    assertEquals(Status.OK, a.status());
    assertEquals(Collections.nCopies(10, 2.0), a.microseconds());
    assertEquals(4e6, a.bytesPerSecond()); // 8 bytes in 2 us
    assertEquals(8e6, a.operationsPerSecond());
    assertEquals(new Device.Roofline(4e6, 2e6), a.roofline()); // the better of both in each
    assertEquals(4, a.ofRoofline()); // of the 2e6 that two operations a byte can reach there
    assertEquals(0.5, Objects.requireNonNull(a.resources()).occupancy());
    assertTrue(a.error() < 0.1);
  }

  /** Validated, compiled and warm before the first ceiling; then in turns, each first once. */
  @Test
  void everyoneTakesTurns() {
    new Pretender("a", 2);
    new Pretender("b", 4);
    new Pretender("c", 1);
    run(TEN);
    assertEquals(List.of("a", "a compile"), log.subList(0, 2));
    List<String> sampled = log.subList(log.indexOf("roofline") + 1, log.lastIndexOf("roofline"));
    assertEquals(
        List.of("a", "b", "c", "b", "c", "a", "c", "a", "b", "a", "b", "c"),
        sampled.subList(0, 12));
    assertEquals(30, sampled.size());
  }

  @Test
  void aWrongOneIsNotTimed() {
    new Pretender("a", 2).right = runs -> false;
    new Pretender("b", 4);
    List<Measurement> measured = run(TEN);
    Measurement a = measured.getFirst();
    assertEquals(Status.WRONG, a.status());
    assertTrue(a.why().startsWith("1 of 6 outputs, the first: output 4 is "), a.why());
    assertEquals(List.of(), a.microseconds());
    assertEquals(List.of("a"), log.stream().filter(l -> l.startsWith("a")).toList()); // one run
    assertEquals(Status.OK, measured.get(1).status());
  }

  @Test
  void whatWritesNothingIsWrong() {
    Pretender lazy =
        new Pretender("a", 2) {
          @Override
          public double microseconds() {
            return 2;
          }
        };
    lazy.written = true; // what others left there
    Measurement a = run(TEN).getFirst();
    assertEquals(Status.WRONG, a.status());
    assertTrue(a.why().startsWith("6 of 6 outputs") && a.why().contains("NaN"), a.why());
  }

  @Test
  void anErrorThatComesLateIsSeenToo() {
    new Pretender("a", 2).right = runs -> runs < 12;
    Measurement a = run(TEN).getFirst();
    assertEquals(Status.WRONG, a.status());
    assertEquals(List.of(), a.microseconds());
  }

  @Test
  void aSlowOneGetsFewerSamplesButFiveAtLeast() {
    new Pretender("a", 3_000); // of 20 ms
    new Pretender("b", 1e6);
    new Pretender("c", 10);
    List<Measurement> measured = run(TEN);
    assertEquals(List.of(7, 5, 10), measured.stream().map(m -> m.microseconds().size()).toList());
  }

  @Test
  void whatDoesNotTakeTheShapeIsLeftOut() {
    new Pretender("a", 2).refusal = "D above 256";
    Pretender full = new Pretender("b", 2);
    full.thrown = new IllegalArgumentException("a limit");
    full.throwsAt = 1;
    new Pretender("c", 4);
    List<Measurement> measured = run(TEN);
    assertEquals(
        List.of(Status.LEFT_OUT, Status.LEFT_OUT, Status.OK),
        measured.stream().map(Measurement::status).toList());
    assertEquals("D above 256", measured.getFirst().why());
    assertEquals("a limit", measured.get(1).why());
    assertEquals(null, measured.getFirst().resources());
  }

  @Test
  void whatFailsIsWrongAndTheOthersGoOn() {
    Pretender failing = new Pretender("a", 2);
    failing.thrown = new IllegalStateException("lost a thread");
    failing.throwsAt = 9;
    new Pretender("b", 4);
    List<Measurement> measured = run(TEN);
    assertEquals("fails: lost a thread", measured.getFirst().why());
    assertEquals(Status.WRONG, measured.getFirst().status());
    assertEquals(10, measured.get(1).microseconds().size());
  }

  /** Nothing more can be asked of the device, but what there is has been heard. */
  @Test
  void aLostDeviceEndsIt() {
    new Pretender("a", 4);
    Pretender losing = new Pretender("b", 2);
    losing.thrown = new BackendException("the device is gone");
    losing.throwsAt = Integer.MAX_VALUE;
    List<Measurement> heard = new ArrayList<>();
    KernelComparison.Listener listener =
        new KernelComparison.Listener() {
          @Override
          public boolean progress(double part) {
            if (part > 0.8) {
              losing.throwsAt = losing.runs + 1;
            }
            return true;
          }

          @Override
          public void measured(List<Measurement> measurements) {
            heard.addAll(measurements);
          }
        };
    BackendException e = assertThrows(BackendException.class, () -> run(TEN, listener));
    assertEquals("the device is gone", e.getMessage());
    assertEquals(
        List.of(Status.OK, Status.WRONG), heard.stream().map(Measurement::status).toList());
    assertEquals("fails: the device is gone", heard.get(1).why());
  }

  @Test
  void anInterruptKeepsWhatHasEnoughSamples() {
    new Pretender("a", 4);
    new Pretender("b", 4);
    List<Double> parts = new ArrayList<>();
    List<Measurement> measured =
        run(
            TEN,
            part -> {
              parts.add(part);
              return part < 0.55;
            });
    assertEquals(List.of(5, 6), measured.stream().map(m -> m.microseconds().size()).toList());
    List<Double> sorted = new ArrayList<>(parts);
    Collections.sort(sorted);
    assertEquals(sorted, parts);
    assertEquals(2, rooflines);
    assertEquals(List.of(), run(TEN, part -> part < 0.3)); // four rounds are no spread
  }

  @Test
  void onlyThoseThatAreNamed() {
    new Pretender("a", 2);
    new Pretender("b", 4);
    assertEquals(
        List.of("b"), run(TEN, part -> true, "b").stream().map(Measurement::variant).toList());
    IllegalArgumentException e =
        assertThrows(IllegalArgumentException.class, () -> run(TEN, part -> true, "b", "v9"));
    assertEquals("'v9' is no variant of gelu: there are a, b", e.getMessage());
  }

  @Test
  void whatIsNowhereIsSaid() {
    IllegalArgumentException e =
        assertThrows(
            IllegalArgumentException.class,
            () ->
                KernelComparison.run(
                    new Pretended(),
                    new Pretended()::candidates,
                    List.of(SHAPE),
                    List.of(Precision.INT8),
                    List.of(),
                    TEN,
                    part -> true));
    assertEquals("there is no gelu in this precision here", e.getMessage());
    assertThrows(IllegalArgumentException.class, () -> new Settings(4, 1));
    assertThrows(IllegalArgumentException.class, () -> new Settings(5, 0));
    assertThrows(IllegalArgumentException.class, () -> new Settings(5, Double.NaN));
  }
}
