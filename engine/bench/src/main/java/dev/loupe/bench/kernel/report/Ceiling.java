package dev.loupe.bench.kernel.report;

import dev.loupe.bench.Spread;
import dev.loupe.bench.kernel.Device;
import dev.loupe.bench.kernel.Measurement;
import dev.loupe.ops.Precision;
import java.util.ArrayList;
import java.util.List;

/** What was measured of a device at best in one precision, over all shapes. */
record Ceiling(Precision precision, Spread bytesPerSecond, Spread operationsPerSecond) {

  /** One for each precision that has any. */
  static List<Ceiling> of(KernelReport report) {
    List<Ceiling> all = new ArrayList<>();
    List<Measurement> measured = report.measurements().stream().filter(Group::hasRoofline).toList();
    for (Precision precision : measured.stream().map(Measurement::precision).distinct().toList()) {
      List<Device.Roofline> rooflines =
          measured.stream()
              .filter(m -> m.precision() == precision)
              .map(Measurement::roofline)
              .distinct()
              .toList();
      all.add(
          new Ceiling(
              precision,
              Spread.of(rooflines.stream().map(Device.Roofline::bytesPerSecond).toList()),
              Spread.of(rooflines.stream().map(Device.Roofline::operationsPerSecond).toList())));
    }
    return all;
  }

  /** The median of each. */
  Device.Roofline middle() {
    return new Device.Roofline(bytesPerSecond.median(), operationsPerSecond.median());
  }

  String sentence() {
    Unit operations = Unit.operations(operationsPerSecond.p90());
    return "At best, measured beside the runs, in %s: memory gives %s %s, arithmetic %s %s."
        .formatted(
            Group.small(precision),
            range(bytesPerSecond, Unit.BYTES),
            Unit.BYTES.name(),
            range(operationsPerSecond, operations),
            operations.name());
  }

  private static String range(Spread spread, Unit unit) {
    String from = unit.number(spread.p10());
    String to = unit.number(spread.p90());
    return from.equals(to) ? to : from + " to " + to;
  }
}
