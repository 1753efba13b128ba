package dev.loupe.bench.kernel.report;

import static dev.loupe.bench.kernel.report.KernelReports.simple;
import static dev.loupe.bench.kernel.report.KernelReports.without;
import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.bench.Machine;
import dev.loupe.bench.kernel.Device;
import dev.loupe.bench.kernel.Measurement;
import dev.loupe.bench.kernel.Measurement.Status;
import dev.loupe.bench.kernel.report.Against.Verdict;
import java.util.List;
import org.junit.jupiter.api.Test;

class AgainstTest {
  private static Against against(Measurement now, Measurement then) {
    return new Against(KernelReports.of(List.of(now)), KernelReports.of(List.of(then)));
  }

  private static String words(Measurement now, Measurement then) {
    return against(now, then).rows().getFirst().words();
  }

  @Test
  void rangesThatAreApartDiffer() {
    Against.Row row = against(simple("a", 10, 0), simple("a", 20, 0)).rows().getFirst();
    assertEquals(Verdict.FASTER, row.verdict());
    assertEquals(2, row.speed());
    assertEquals("100% faster", row.words());
    row = against(simple("a", 20, 0), simple("a", 10, 0)).rows().getFirst();
    assertEquals(Verdict.SLOWER, row.verdict());
    assertEquals(0.5, row.speed());
    assertEquals("50% slower", row.words());
    assertEquals("5.0% faster", words(simple("a", 100, 0), simple("a", 105, 0)));
    assertEquals("9.9% slower", words(simple("a", 111, 0), simple("a", 100, 0))); // 1 - 100/111
    assertEquals("10% slower", words(simple("a", 1111, 0), simple("a", 1000, 0)));
  }

  /** Six samples with a step of 1 from x on have p10 at x + 0.5 and p90 at x + 4.5. */
  @Test
  void rangesThatTouchAreNoise() {
    Measurement then = simple("a", 10, 1);
    for (double from : new double[] {6, 8, 10, 12, 14}) { // touching, inside, touching
      Against.Row row = against(simple("a", from, 1), then).rows().getFirst();
      assertEquals(Verdict.WITHIN_NOISE, row.verdict());
      assertEquals("within noise", row.words());
      assertEquals(12.5 / (from + 2.5), row.speed(), 1e-12);
    }
    assertEquals(Verdict.FASTER, against(simple("a", 5.75, 1), then).rows().getFirst().verdict());
    assertEquals(Verdict.SLOWER, against(simple("a", 14.25, 1), then).rows().getFirst().verdict());
  }

  private static Measurement under(Device.Roofline ceilings, Measurement m) {
    return m.with(m.microseconds(), ceilings);
  }

  /** Four operations a byte, under 1 GB/s: memory is the limit, 4 GFLOP/s the most there is. */
  @Test
  void whatTheMachineDidIsNoVerdictOnAKernel() {
    Measurement then = simple("a", 10, 0.1); // p10 10.05, p90 10.45
    Device.Roofline faster = new Device.Roofline(1.1e9, 8e9);
    Against.Row row = against(under(faster, simple("a", 9.2, 0.1)), then).rows().getFirst();
    assertEquals(Verdict.LIKE_THE_MACHINE, row.verdict());
    assertEquals("like the machine", row.words());
    Against both = against(under(faster, simple("a", 9.2, 0.1)), then);
    assertEquals("1 like the machine.", both.summary());
    assertEquals(
        List.of("At best, this machine does 10% more of this work than then (median)."),
        both.differences());
    assertEquals("27% faster", words(under(faster, simple("a", 8.1, 0)), then)); // 10.25 / 8.1
    Device.Roofline arithmetic = new Device.Roofline(1e9, 80e9); // not the limit
    assertEquals("8.5% faster", words(under(arithmetic, simple("a", 9.2, 0.1)), then));
    Device.Roofline slower = new Device.Roofline(0.5e9, 8e9);
    assertEquals("like the machine", words(under(slower, simple("a", 20, 0.2)), then));
    assertEquals("within noise", words(under(slower, simple("a", 10, 0.1)), then));
    Device.Roofline none = new Device.Roofline(Double.NaN, Double.NaN);
    assertEquals("8.5% faster", words(under(none, simple("a", 9.2, 0.1)), then));
  }

  @Test
  void fewSamplesAreNoise() {
    Measurement four = simple("a", 10.0, 10.0, 10.0, 10.0);
    Measurement five = simple("a", 10.0, 10.0, 10.0, 10.0, 10.0);
    Measurement old = simple("a", 99, 0);
    assertEquals("within noise", words(four, old));
    assertEquals("within noise", words(old, four));
    assertEquals("890% faster", words(five, old));
  }

  @Test
  void whatHasNoTimesIsSaidAndCounted() {
    Measurement ok = simple("a", 10, 0);
    Measurement wrong = without("a", Status.WRONG, "no");
    Measurement out = without("a", Status.LEFT_OUT, "no room");
    assertEquals("wrong now", words(wrong, ok));
    assertEquals("wrong then", words(ok, wrong));
    assertEquals("still wrong", words(wrong, wrong));
    assertEquals("left out now", words(out, wrong));
    assertEquals("new", words(ok, simple("b", 10, 0)));
    KernelReport now =
        KernelReports.of(
            List.of(
                wrong,
                simple("b", 5, 0),
                simple("c", 10, 0),
                simple("d", 1, 0),
                simple("e", 5, 0)));
    KernelReport then =
        KernelReports.of(
            List.of(
                ok, simple("b", 10, 0), simple("c", 10, 0), simple("e", 9, 0), simple("f", 1, 0)));
    Against against = new Against(now, then);
    assertEquals("1 wrong now, 2 faster, 1 within noise, 1 new.", against.summary());
    assertEquals(List.of("1 of the 5 results then are not in this run."), against.differences());
    Against none = new Against(KernelReports.of(List.of()), then);
    assertEquals("Nothing to compare.", none.summary());
  }

  @Test
  void emulatedTimesAreNotCompared() {
    List<Measurement> all = List.of(simple("a", 10, 0));
    KernelReport real = KernelReports.of(List.of(simple("a", 99, 0)));
    KernelReport emulated = KernelReports.emulated(all);
    for (Against each :
        List.of(
            new Against(emulated, real),
            new Against(real, emulated),
            new Against(emulated, emulated))) {
      Against.Row row = each.rows().getFirst();
      assertEquals(Verdict.NOT_COMPARED, row.verdict());
      assertEquals("emulated", row.words());
      assertEquals(Double.NaN, row.speed());
      assertEquals("1 emulated.", each.summary());
      assertEquals("Times of an emulated card are not compared.", each.differences().getLast());
    }
  }

  @Test
  void onlyTheSameShapeAndPrecisionCounts() {
    KernelReport report = KernelReports.cuda(false);
    List<Measurement> all = report.measurements();
    for (Against.Row row : new Against(report, report).rows()) {
      assertEquals(row.now(), row.then());
    }
    KernelReport half = KernelReports.of(all.subList(0, 12)); // f32 alone
    long found = new Against(report, half).rows().stream().filter(r -> r.then() != null).count();
    assertEquals(12, found);
  }

  @Test
  void saysWhatElseIsAnother() {
    KernelReport now = KernelReports.of(List.of());
    KernelReport then =
        new KernelReport(
            now.started(),
            false,
            new Machine("Other CPU", 4, 256, "26", 1),
            3,
            "cuda",
            "some card",
            false,
            KernelReports.SETTINGS,
            List.of(),
            null);
    assertEquals(
        List.of(
            "Another backend: cuda then, cpu now.",
            "Another device: some card then, cpu, 512-bit vectors, 2 threads now.",
            "Another processor: Other CPU then, Some 2-core CPU now.",
            "Another number of processors: 4 then, 2 now.",
            "Another number of threads: 3 then, 2 now.",
            "Another width of vectors: 256 then, 512 now.",
            "Another Java: 26 then, 25.0.1+8 now."),
        new Against(now, then).differences());
    assertEquals(List.of(), new Against(now, now).differences());
  }
}
