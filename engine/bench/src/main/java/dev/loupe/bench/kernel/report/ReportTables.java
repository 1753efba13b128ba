package dev.loupe.bench.kernel.report;

import dev.loupe.bench.kernel.Candidate;
import dev.loupe.bench.kernel.Measurement;
import dev.loupe.bench.kernel.Measurement.Status;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BiFunction;
import java.util.function.Function;
import java.util.function.ToDoubleFunction;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/** Reports as CSV and as Markdown. */
final class ReportTables {
  private record Column(String name, BiFunction<Group, Measurement, String> cell) {}

  private ReportTables() {}

  /** Every figure as it is; what is not there is empty. */
  static String csv(KernelReport report) {
    List<Column> columns = csvColumns(report);
    StringBuilder out = new StringBuilder();
    out.append(columns.stream().map(Column::name).collect(Collectors.joining(","))).append('\n');
    for (Group group : Group.of(report.measurements())) {
      for (Measurement m : group.all()) {
        out.append(
            columns.stream().map(c -> c.cell.apply(group, m)).collect(Collectors.joining(",")));
        out.append('\n');
      }
    }
    return out.toString();
  }

  private static List<Column> csvColumns(KernelReport report) {
    List<Column> columns = new ArrayList<>();
    columns.add(of("operation", m -> m.shape().operation().label()));
    report.measurements().stream()
        .flatMap(m -> m.shape().operation().axes().stream())
        .distinct()
        .forEach(
            axis ->
                columns.add(
                    of(
                        axis,
                        m ->
                            m.shape().operation().axes().contains(axis)
                                ? String.valueOf(m.shape().size(axis))
                                : "")));
    columns.add(of("variant", m -> quoted(m.variant())));
    columns.add(of("idea", m -> quoted(m.idea())));
    columns.add(of("dtype", m -> Group.small(m.precision())));
    columns.add(of("status", m -> Group.small(m.status())));
    columns.add(of("why", m -> quoted(m.why())));
    columns.add(number("error", Measurement::error));
    columns.add(of("samples", m -> String.valueOf(m.microseconds().size())));
    columns.add(timed("median_us", m -> m.times().median()));
    columns.add(timed("p10_us", m -> m.times().p10()));
    columns.add(timed("p90_us", m -> m.times().p90()));
    columns.add(number("bytes", m -> m.work().bytes()));
    columns.add(number("operations", m -> m.work().operations()));
    if (!report.emulated()) {
      columns.add(
          new Column("speed_up", (g, m) -> m.status() == Status.OK ? finite(g.speedUp(m)) : ""));
      columns.add(timed("gb_per_s", m -> m.bytesPerSecond() / 1e9));
      columns.add(timed("gflop_per_s", m -> m.operationsPerSecond() / 1e9));
      columns.add(number("roofline_gb_per_s", m -> m.roofline().bytesPerSecond() / 1e9));
      columns.add(number("roofline_gflop_per_s", m -> m.roofline().operationsPerSecond() / 1e9));
      columns.add(timed("percent_of_roofline", m -> 100 * m.ofRoofline()));
    }
    columns.add(resource("registers", r -> String.valueOf(r.registers())));
    columns.add(resource("shared_bytes", r -> String.valueOf(r.sharedBytes())));
    columns.add(resource("block_threads", r -> String.valueOf(r.threads())));
    if (!report.emulated()) {
      columns.add(resource("occupancy", r -> finite(r.occupancy())));
    }
    columns.add(of("backend", m -> quoted(report.backend())));
    columns.add(of("device", m -> quoted(report.device())));
    columns.add(of("emulated", m -> String.valueOf(report.emulated())));
    columns.add(of("started", m -> report.started().toString()));
    return columns;
  }

  private static Column of(String name, Function<Measurement, String> cell) {
    return new Column(name, (group, m) -> cell.apply(m));
  }

  private static Column number(String name, ToDoubleFunction<Measurement> value) {
    return of(name, m -> finite(value.applyAsDouble(m)));
  }

  private static Column timed(String name, ToDoubleFunction<Measurement> value) {
    return of(name, m -> m.status() == Status.OK ? finite(value.applyAsDouble(m)) : "");
  }

  private static Column resource(String name, Function<Candidate.Resources, String> value) {
    return of(
        name,
        m -> {
          Candidate.@Nullable Resources resources = m.resources();
          return resources == null ? "" : value.apply(resources);
        });
  }

  private static String finite(double value) {
    return Double.isFinite(value) ? String.valueOf(value) : "";
  }

  private static String quoted(String text) {
    return '"' + text.replace("\"", "\"\"") + '"';
  }

  static String markdown(KernelReport report) {
    StringBuilder out = new StringBuilder();
    out.append("## ").append(plain(report.subject())).append("\n\n");
    out.append(plain("On " + report.device() + ".")).append('\n');
    if (report.emulated()) {
      out.append(KernelReport.EMULATED).append('\n');
    }
    out.append(plain(report.host())).append('\n');
    out.append(plain(report.procedure())).append('\n');
    out.append(report.letters()).append('\n');
    for (Ceiling each : Ceiling.of(report)) {
      out.append(each.sentence()).append('\n');
    }
    out.append('\n');
    Group.ideas(report.measurements())
        .forEach(
            (variant, idea) -> out.append("- **%s**: %s\n".formatted(plain(variant), plain(idea))));
    for (Group group : Group.of(report.measurements())) {
      out.append("\n### ").append(plain(group.name())).append("\n\n");
      group(report, group, out);
      if (!report.emulated()) {
        out.append('\n').append(plain(group.verdict(report.place())));
        out.append(' ').append(group.limit());
        out.append('\n');
      }
    }
    against(report, out);
    if (!report.emulated()) {
      out.append('\n').append(plain(report.legend())).append('\n');
    }
    return out.toString();
  }

  private static void group(KernelReport report, Group group, StringBuilder out) {
    double most =
        group.timed().stream().mapToDouble(Measurement::operationsPerSecond).max().orElse(0);
    Unit operations = Unit.operations(most);
    if (report.emulated()) {
      row(out, "variant", "median, emulated", "p10", "p90");
      row(out, "---", "---:", "---:", "---:");
    } else {
      row(out, "variant", "median", "p10", "p90", "speed-up", operations.name(), "GB/s", "of best");
      row(out, "---", "---:", "---:", "---:", "---:", "---:", "---:", "---:");
    }
    for (Measurement m : group.all()) {
      List<String> cells = new ArrayList<>(List.of(m.variant()));
      if (m.status() != Status.OK) {
        cells.add(ReportText.note(m));
      } else {
        cells.add(Unit.timeOf(m.times().median()));
        cells.add(Unit.timeOf(m.times().p10()));
        cells.add(Unit.timeOf(m.times().p90()));
      }
      if (m.status() == Status.OK && !report.emulated()) {
        cells.add(Unit.times(group.speedUp(m)));
        cells.add(operations.number(m.operationsPerSecond()));
        cells.add(Unit.BYTES.number(m.bytesPerSecond()));
        cells.add(Group.hasRoofline(m) ? Unit.percent(m.ofRoofline()) : "");
      }
      while (cells.size() < (report.emulated() ? 4 : 8)) {
        cells.add("");
      }
      row(out, cells.toArray(String[]::new));
    }
  }

  private static void against(KernelReport report, StringBuilder out) {
    KernelReport before = report.before();
    if (before == null) {
      return;
    }
    Against against = new Against(report, before);
    out.append("\n## ").append(plain(against.title())).append("\n\n");
    out.append(against.summary()).append('\n');
    against.differences().forEach(line -> out.append(plain(line)).append('\n'));
    out.append('\n');
    row(out, "shape", "variant", "then (p10 to p90)", "now (p10 to p90)", "speed", "verdict");
    row(out, "---", "---", "---:", "---:", "---:", "---");
    for (Against.Row each : against.rows()) {
      row(
          out,
          each.now().shape() + " in " + Group.small(each.now().precision()),
          each.now().variant(),
          time(each.then()),
          time(each.now()),
          Double.isNaN(each.speed()) ? "" : Unit.times(each.speed()),
          each.words());
    }
  }

  private static String time(@Nullable Measurement m) {
    return m == null || m.status() != Status.OK
        ? ""
        : "%s (%s to %s)"
            .formatted(
                Unit.timeOf(m.times().median()),
                Unit.timeOf(m.times().p10()),
                Unit.timeOf(m.times().p90()));
  }

  private static void row(StringBuilder out, String... cells) {
    out.append(
        Stream.of(cells).map(ReportTables::plain).collect(Collectors.joining(" | ", "| ", " |\n")));
  }

  /** Text in which nothing is Markdown or HTML, on one line. */
  private static String plain(String text) {
    return text.replaceAll("[\\\\`*_\\[\\]|~#]", "\\\\$0")
        .replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replaceAll("\\R|\\t", " ");
  }
}
