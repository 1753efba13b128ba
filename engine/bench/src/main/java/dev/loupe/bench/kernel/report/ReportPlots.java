package dev.loupe.bench.kernel.report;

import dev.loupe.bench.kernel.Device;
import dev.loupe.bench.kernel.Measurement;
import dev.loupe.bench.kernel.Shape;
import dev.loupe.export.figure.CurveFigure;
import dev.loupe.export.figure.CurveFigure.Curve;
import dev.loupe.export.figure.CurveFigure.Limit;
import dev.loupe.export.figure.CurveFigure.Mark;
import dev.loupe.export.figure.CurveFigure.Point;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.stream.Collectors;

/** What the numbers of several shapes show together. */
final class ReportPlots {
  /** A figure and what it is of. */
  record Plot(String heading, CurveFigure figure) {}

  private ReportPlots() {}

  /** Speed against the first axis, for all sizes of the others in each precision. */
  static List<Plot> speed(List<Group> groups) {
    Map<String, List<Group>> alike = new LinkedHashMap<>();
    for (Group group : groups) {
      alike.computeIfAbsent(others(group), k -> new ArrayList<>()).add(group);
    }
    List<Plot> plots = new ArrayList<>();
    for (Map.Entry<String, List<Group>> each : alike.entrySet()) {
      List<Group> timed =
          each.getValue().stream()
              .filter(g -> g.fastest() != null)
              .sorted(Comparator.comparingInt(ReportPlots::size))
              .toList();
      if (timed.size() > 1) {
        plots.add(new Plot(each.getKey(), speedOf(each.getKey(), timed)));
      }
    }
    return plots;
  }

  private static int size(Group group) {
    return group.shape().sizes().getFirst();
  }

  /** What has to be the same for sizes of the first axis to be compared. */
  private static String others(Group group) {
    Shape shape = group.shape();
    List<String> axes = shape.operation().axes();
    return axes.stream()
            .skip(1)
            .map(axis -> axis + "=" + shape.size(axis))
            .collect(Collectors.joining(" "))
        + " in "
        + Group.small(group.precision());
  }

  private static CurveFigure speedOf(String heading, List<Group> groups) {
    Measurement largest = fastest(groups.getLast());
    boolean memory = Group.memoryBound(largest);
    Unit unit = memory ? Unit.BYTES : Unit.operations(largest.operationsPerSecond());
    String axis = largest.shape().operation().axes().getFirst();
    Map<String, List<Point>> points = new LinkedHashMap<>();
    List<Point> best = new ArrayList<>();
    for (Group group : groups) {
      for (Measurement m : group.timed()) {
        double speed = memory ? m.bytesPerSecond() : m.operationsPerSecond();
        points
            .computeIfAbsent(m.variant(), k -> new ArrayList<>())
            .add(new Point(size(group), speed / unit.size(), tip(m)));
      }
      Measurement fastest = fastest(group);
      if (Group.hasRoofline(fastest)) {
        double intensity = fastest.work().intensity();
        double roof = fastest.roofline().operationsPerSecond(intensity);
        best.add(new Point(size(group), (memory ? roof / intensity : roof) / unit.size(), ""));
      }
    }
    return new CurveFigure(
        "Speed of the variants against " + axis + ", " + heading,
        axis + ", log scale",
        unit.name(),
        groups.stream().map(g -> new Mark(size(g), String.valueOf(size(g)))).toList(),
        List.of(),
        Unit::round,
        curves(points, true),
        best.size() < 2 ? List.of() : List.of(new Limit("roofline", best)));
  }

  private static Measurement fastest(Group group) {
    return Objects.requireNonNull(group.fastest());
  }

  private static List<Curve> curves(Map<String, List<Point>> points, boolean joined) {
    return points.entrySet().stream()
        .map(e -> new Curve(e.getKey(), joined, e.getValue()))
        .toList();
  }

  private static String tip(Measurement m) {
    String speed =
        "%s, %s: %s, %s GFLOP/s, %s GB/s"
            .formatted(
                m.variant(),
                m.shape(),
                Unit.timeOf(m.times().median()),
                Unit.digits(m.operationsPerSecond() / 1e9),
                Unit.digits(m.bytesPerSecond() / 1e9));
    return Group.hasRoofline(m) ? speed + ", " + Unit.percent(m.ofRoofline()) + " of best" : speed;
  }

  /** Where each variant stands below the ceilings, for each precision. */
  static List<Plot> roofline(KernelReport report, List<Group> groups) {
    List<Plot> plots = new ArrayList<>();
    for (Ceiling ceiling : Ceiling.of(report)) {
      List<Group> own =
          groups.stream()
              .filter(g -> g.precision() == ceiling.precision() && g.fastest() != null)
              .toList();
      if (!own.isEmpty()) {
        plots.add(new Plot("In " + Group.small(ceiling.precision()), rooflineOf(ceiling, own)));
      }
    }
    return plots;
  }

  private static CurveFigure rooflineOf(Ceiling ceiling, List<Group> groups) {
    Device.Roofline roof = ceiling.middle();
    Unit unit = Unit.operations(roof.operationsPerSecond());
    Map<String, List<Point>> points = new LinkedHashMap<>();
    Map<Double, String> shapes = new TreeMap<>();
    for (Group group : groups) {
      for (Measurement m : group.timed()) {
        double intensity = m.work().intensity();
        points
            .computeIfAbsent(m.variant(), k -> new ArrayList<>())
            .add(new Point(intensity, m.operationsPerSecond() / unit.size(), tip(m)));
        String name = differing(group, groups);
        shapes.merge(intensity, name, (a, b) -> a.contains(b) ? a : a + ", " + b);
      }
    }
    points.values().forEach(p -> p.sort(Comparator.comparingDouble(Point::x)));
    double knee = roof.operationsPerSecond() / roof.bytesPerSecond();
    double top = roof.operationsPerSecond() / unit.size();
    double from = Math.min(shapes.keySet().iterator().next(), knee) / 4;
    double to = Math.max(shapes.keySet().stream().reduce(0.0, Math::max), knee) * 4;
    return new CurveFigure(
        "Roofline in " + Group.small(ceiling.precision()),
        "operations for each byte, log scale",
        unit.name(),
        List.of(),
        shapes.entrySet().stream().map(e -> new Mark(e.getKey(), e.getValue())).toList(),
        Unit::round,
        curves(points, false),
        List.of(
            new Limit(
                "memory, " + Unit.BYTES.with(roof.bytesPerSecond()),
                List.of(new Point(from, top * from / knee, ""), new Point(knee, top, ""))),
            new Limit(
                "arithmetic, " + unit.with(roof.operationsPerSecond()),
                List.of(new Point(knee, top, ""), new Point(to, top, "")))));
  }

  /** The axes in which a shape is not like all others. */
  private static String differing(Group group, List<Group> groups) {
    Shape shape = group.shape();
    return shape.operation().axes().stream()
        .filter(axis -> groups.stream().anyMatch(g -> !same(g.shape(), shape, axis)))
        .map(axis -> axis + "=" + shape.size(axis))
        .collect(Collectors.joining(" "));
  }

  private static boolean same(Shape a, Shape b, String axis) {
    return a.operation() == b.operation() && a.size(axis) == b.size(axis);
  }
}
