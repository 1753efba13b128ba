package dev.loupe.bench.kernel.report;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.bench.kernel.Device.Roofline;
import dev.loupe.bench.kernel.Measurement;
import dev.loupe.bench.kernel.Operation;
import dev.loupe.bench.kernel.Shape;
import dev.loupe.export.figure.CurveFigure;
import dev.loupe.export.figure.CurveFigure.Point;
import dev.loupe.ops.Precision;
import java.util.List;
import org.junit.jupiter.api.Test;

class ReportPlotsTest {
  /** {@link KernelReports#simple} with another size, precision, and ceilings. */
  private static Measurement like(Measurement m, int rows, Precision precision, Roofline roofline) {
    return new Measurement(
        Shape.of(Operation.GELU, rows, 500),
        m.variant(),
        m.idea(),
        precision,
        m.status(),
        m.why(),
        m.error(),
        m.microseconds(),
        m.work(),
        roofline,
        m.resources());
  }

  private static List<String> places(List<Point> points) {
    return points.stream().map(p -> Unit.digits(p.x()) + " " + Unit.digits(p.y())).toList();
  }

  /** 1,000 bytes in 10 us are 0.1 GB/s, of 1 GB/s; 0.4 GFLOP/s at 4 operations a byte, of 8. */
  @Test
  void pointsAndLimitsByHand() {
    Measurement two = KernelReports.simple("a", 10, 0);
    Measurement four = like(two, 4, Precision.F32, two.roofline());
    KernelReport report = KernelReports.of(List.of(two, four));
    List<Group> groups = Group.of(report.measurements());
    CurveFigure speed = ReportPlots.speed(groups).getFirst().figure();
    assertEquals("GB/s", speed.y());
    assertEquals(List.of("2.00 0.100", "4.00 0.100"), places(speed.curves().getFirst().points()));
    assertEquals(List.of("2.00 1.00", "4.00 1.00"), places(speed.limits().getFirst().points()));
    CurveFigure roofline = ReportPlots.roofline(report, groups).getFirst().figure();
    assertEquals("GFLOP/s", roofline.y());
    assertEquals(
        List.of("4.00 0.400", "4.00 0.400"), places(roofline.curves().getFirst().points()));
    assertEquals(List.of("1.00 1.00", "8.00 8.00"), places(roofline.limits().get(0).points()));
    assertEquals(List.of("8.00 8.00", "32.0 8.00"), places(roofline.limits().get(1).points()));
  }

  @Test
  void eachPrecisionHasItsOwnCeiling() {
    Measurement full = KernelReports.simple("a", 10, 0);
    Measurement half = like(full, 2, Precision.BF16, new Roofline(1e9, 64e9));
    List<Ceiling> all = Ceiling.of(KernelReports.of(List.of(full, half)));
    assertEquals(
        List.of(new Roofline(1e9, 8e9), new Roofline(1e9, 64e9)),
        all.stream().map(Ceiling::middle).toList());
  }
}
