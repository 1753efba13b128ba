package dev.loupe.bench.kernel.report;

import dev.loupe.bench.Machine;
import dev.loupe.bench.kernel.Candidate.Resources;
import dev.loupe.bench.kernel.Device.Roofline;
import dev.loupe.bench.kernel.KernelComparison;
import dev.loupe.bench.kernel.Measurement;
import dev.loupe.bench.kernel.Measurement.Status;
import dev.loupe.bench.kernel.Operation;
import dev.loupe.bench.kernel.Problem;
import dev.loupe.bench.kernel.Shape;
import dev.loupe.ops.Precision;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.jspecify.annotations.Nullable;

/** Made-up reports. No number here was measured, least of all those of a GPU. */
final class KernelReports {
  static final Machine MACHINE = new Machine("Some 2-core CPU", 2, 512, "25.0.1+8", 0.25);
  static final KernelComparison.Settings SETTINGS = new KernelComparison.Settings(30, 2);
  static final Roofline CPU = new Roofline(41e9, 235e9);
  static final Roofline CARD = new Roofline(1.5e12, 1e14);

  /** A variant of the CPU's ladder and what part of the arithmetic it reaches. */
  private enum Rung {
    NAIVE("three loops a row: scores, softmax, sum", 0.006),
    ONLINE("softmax on the fly, so that no row of scores is kept", 0.009),
    TILED("tiles of 32 keys, which stay in the first cache", 0.021),
    VECTOR_128("vectors of 128 bits in the loops over the head", 0.16),
    VECTOR_256("vectors of 256 bits", 0.3),
    VECTOR_512("vectors of 512 bits", 0.352),
    THREADS("tiled-512 on all threads, a head each", 0.66);

    final String idea;
    final double part;

    Rung(String idea, double part) {
      this.idea = idea;
      this.part = part;
    }

    String label() {
      return Group.small(this).replace(' ', '-');
    }
  }

  private KernelReports() {}

  /** Samples around a median, of which the slow ones lie farther off. */
  static List<Double> samples(int n, double median, double spread, long seed) {
    Random random = new Random(seed);
    List<Double> samples = new ArrayList<>();
    for (int i = 0; i < n; i++) {
      double at = random.nextGaussian() * spread;
      samples.add(median * (1 + (at > 0 ? 2 * at : at)));
    }
    return samples;
  }

  static Measurement ok(Shape shape, String variant, String idea, List<Double> samples) {
    return new Measurement(
        shape,
        variant,
        idea,
        Precision.F32,
        Status.OK,
        "",
        0.0125,
        samples,
        Problem.Work.of(shape, 4, 4),
        CPU,
        null);
  }

  static Measurement without(Shape shape, String variant, Status status, String why) {
    return new Measurement(
        shape,
        variant,
        "an idea",
        Precision.F32,
        status,
        why,
        status == Status.WRONG ? 7.5 : Double.NaN,
        List.of(),
        Problem.Work.of(shape, 4, 4),
        CPU,
        null);
  }

  /**
   * One whose figures are easily had by hand: 1,000 bytes, 4,000 operations, on what gives 1 GB/s
   * and 8 GFLOP/s, so that memory ends it at 4 GFLOP/s. 10 us are a tenth of that.
   */
  static Measurement simple(String variant, Double... microseconds) {
    return new Measurement(
        Shape.of(Operation.GELU, 2, 500),
        variant,
        "the idea of " + variant,
        Precision.F32,
        Status.OK,
        "",
        0.5,
        List.of(microseconds),
        new Problem.Work(1000, 4000),
        new Roofline(1e9, 8e9),
        null);
  }

  /** Six samples from {@code from} on, a step of {@code step} between them. */
  static Measurement simple(String variant, double from, double step) {
    Double[] samples = new Double[6];
    for (int i = 0; i < samples.length; i++) {
      samples[i] = from + i * step;
    }
    return simple(variant, samples);
  }

  static Measurement without(String variant, Status status, String why) {
    return without(Shape.of(Operation.GELU, 2, 500), variant, status, why);
  }

  /** Names and reasons that break what does not escape them. */
  static KernelReport hostile() {
    String name = "<script>alert('1')</script>|\"a\",&amp;\n*b*_`c`\u001b[31m\ud800";
    Shape shape = Shape.of(Operation.GELU, 2, 500);
    return new KernelReport(
        Instant.parse("2026-11-28T12:00:00Z"),
        true,
        new Machine(name, 1, 0, name, -1),
        1,
        "cpu",
        name,
        false,
        SETTINGS,
        List.of(
            ok(shape, name, name, samples(30, 5, 0.01, 1)),
            without(shape, "w" + name, Status.WRONG, name),
            without(shape, "l" + name, Status.LEFT_OUT, name)),
        null);
  }

  /** Twenty variants that are about as fast as each other, on shapes of two kinds. */
  static KernelReport crowded() {
    List<Measurement> all = new ArrayList<>();
    for (int k : new int[] {768, 3072}) {
      for (int m : new int[] {1, 2, 3, 4, 5, 6, 7, 8, 16, 1024}) {
        Shape shape = Shape.of(Operation.LINEAR, m, k, 3072);
        double median = Problem.Work.of(shape, 4, 4).operations() / 1e11 * 1e6;
        for (int i = 0; i < 20; i++) {
          String name = "tiled-of-some-kind@" + 32 * (i + 1);
          String idea = "blocks of %s threads, and many words on why that may be good".formatted(i);
          all.add(ok(shape, name, idea, samples(5, median * (1 + i / 100.0), 0.1, all.size())));
        }
      }
    }
    return of(all);
  }

  /** The same measurements as of an emulated card. */
  static KernelReport emulated(List<Measurement> measurements) {
    return new KernelReport(
        Instant.parse("2026-11-28T12:00:00Z"),
        false,
        MACHINE,
        2,
        "cuda",
        "Loupe CPU emulator",
        true,
        SETTINGS,
        measurements,
        null);
  }

  static KernelReport of(List<Measurement> measurements) {
    return new KernelReport(
        Instant.parse("2026-11-28T12:00:00Z"),
        false,
        MACHINE,
        2,
        "cpu",
        "cpu, 512-bit vectors, 2 threads",
        false,
        SETTINGS,
        measurements,
        null);
  }

  /** The CPU's attention on four sizes; {@code faster} than usual, but for naive. */
  static KernelReport cpu(long seed, double faster) {
    List<Measurement> all = new ArrayList<>();
    for (int t = 128; t <= 1024; t *= 2) {
      Shape shape = Shape.of(Operation.ATTENTION, t, 12, 64);
      double operations = Problem.Work.of(shape, 4, 4).operations();
      for (Rung rung : Rung.values()) {
        double part = rung.part * (rung == Rung.NAIVE ? 1 : faster) * (1 - 12.0 / t);
        double median = operations / (part * CPU.operationsPerSecond()) * 1e6;
        all.add(ok(shape, rung.label(), rung.idea, samples(30, median, 0.02, seed + all.size())));
      }
    }
    return of(all);
  }

  /** A card's ladder with resources, a wrong variant and one that is left out. */
  static KernelReport cuda(boolean emulated) {
    List<Measurement> all = new ArrayList<>();
    for (Precision precision : List.of(Precision.F32, Precision.BF16)) {
      for (int t : new int[] {1024, 4096}) {
        Shape shape = Shape.of(Operation.ATTENTION, t, 12, 64);
        card(all, shape, precision, "v1", "one thread a query", 0.004, 0, null);
        card(all, shape, precision, "v2", "a warp a query, lanes share the head", 0.02, 0, null);
        String moved = "12 of 3072 outputs, the first: output 17 is 0.25, not 0.125";
        card(all, shape, precision, "v3", "tiles of keys in shared memory", 0, 16384, moved);
        card(all, shape, precision, "v4", "tensor cores, mma.sync", 0.3, 49152, null);
        card(all, shape, precision, "v5", "copies run ahead, \"cp.async\"", 0.31, 98304, null);
        if (precision == Precision.F32) {
          card(all, shape, precision, "v6", "wgmma, TMA", 0, 0, "");
        }
      }
    }
    return new KernelReport(
        Instant.parse("2026-11-28T12:00:00Z"),
        false,
        MACHINE,
        2,
        "cuda",
        emulated ? "Loupe CPU emulator" : "made-up card",
        emulated,
        SETTINGS,
        all,
        null);
  }

  private static void card(
      List<Measurement> all,
      Shape shape,
      Precision precision,
      String variant,
      String idea,
      double part,
      int shared,
      @Nullable String wrong) {
    int bytes = precision == Precision.F32 ? 4 : 2;
    Problem.Work work = Problem.Work.of(shape, bytes, bytes);
    Status status =
        part > 0 ? Status.OK : String.valueOf(wrong).isEmpty() ? Status.LEFT_OUT : Status.WRONG;
    all.add(
        new Measurement(
            shape,
            variant,
            idea,
            precision,
            status,
            status == Status.LEFT_OUT ? "only 16-bit inputs" : wrong == null ? "" : wrong,
            status == Status.LEFT_OUT ? Double.NaN : 0.02,
            status == Status.OK
                ? samples(30, work.operations() / (part * 1e14) * 1e6, 0.01, all.size())
                : List.of(),
            work,
            CARD,
            status == Status.LEFT_OUT ? null : new Resources(96, shared, 128, 0.3125)));
  }
}
