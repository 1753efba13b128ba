package dev.loupe.bench.kernel.report;

import static dev.loupe.export.figure.Svg.escape;

import dev.loupe.bench.kernel.Candidate;
import dev.loupe.bench.kernel.Measurement;
import dev.loupe.bench.kernel.Measurement.Status;
import dev.loupe.export.figure.LadderFigure;
import dev.loupe.export.figure.Svg;
import dev.loupe.export.page.ContentPolicy;
import dev.loupe.export.page.HtmlTable;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.function.IntFunction;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * A report as a page for a browser: one file without a script. Each figure is there twice, for wide
 * windows and for narrow ones, as text that is drawn smaller can't be read.
 */
final class ReportPage {
  private static final int WIDE = 960;
  private static final int NARROW = 372;

  private final KernelReport report;
  private final List<Group> groups;
  private final StringBuilder out = new StringBuilder();

  ReportPage(KernelReport report) {
    this.report = report;
    this.groups = Group.of(report.measurements());
  }

  @Override
  public String toString() {
    out.setLength(0);
    String style = Svg.pageStyle() + resource();
    String title = report.subject() + ", on " + report.device();
    out.append(
        """
        <!doctype html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta http-equiv="Content-Security-Policy" content="%s">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <title>%s</title>
        <link rel="icon" href="data:,">
        <style>%s</style>
        </head>
        <body>
        """
            .formatted(ContentPolicy.of(style), escape(title), style));
    head();
    if (!report.emulated()) {
      groups.forEach(this::ladder);
      figures(
          "Speed against size",
          "Up is faster; both scales are logarithmic. The dashed line is what %s's memory and"
                  .formatted(report.place())
              + " arithmetic allow for this work.",
          ReportPlots.speed(groups));
      figures(
          "Roofline",
          "Work of few operations for each byte can be no faster than memory brings the bytes (the"
              + " slope), other work no faster than arithmetic (the flat part). A column of points"
              + " is a shape; the nearer to the dashed roof a point is, the less there is to gain.",
          ReportPlots.roofline(report, groups));
    }
    against();
    table();
    out.append("</body>\n</html>\n");
    return out.toString();
  }

  private void element(String name, String text) {
    out.append("<%s>%s</%s>\n".formatted(name, escape(text), name));
  }

  private void head() {
    element("h1", report.subject());
    element("p", "On " + report.device() + ".");
    if (report.emulated()) {
      out.append("<p class=\"warning\">").append(KernelReport.EMULATED).append("</p>\n<ul>\n");
      Group.ideas(report.measurements())
          .forEach((variant, idea) -> element("li", variant + ": " + idea));
      out.append("</ul>\n");
    } else if (!groups.isEmpty()) {
      out.append("<ul>\n");
      for (Group group : groups) {
        out.append("<li><b>").append(escape(group.name())).append("</b>: ");
        out.append(escape(group.verdict(report.place()))).append("</li>\n");
      }
      out.append("</ul>\n");
    }
    KernelReport before = report.before();
    if (before != null) {
      Against against = new Against(report, before);
      element("p", against.title() + ": " + against.summary());
      against.differences().forEach(line -> element("p", line));
    }
    out.append("<div class=\"muted\">\n");
    element("p", report.host());
    element("p", report.procedure());
    element("p", report.letters());
    Ceiling.of(report).forEach(each -> element("p", each.sentence()));
    out.append("</div>\n");
  }

  private void ladder(Group group) {
    List<LadderFigure.Row> rows = group.all().stream().map(m -> row(group, m)).toList();
    LadderFigure figure =
        new LadderFigure(
            "Times of the variants for " + group.name(),
            "median time, line from p10 to p90; log scale, shorter is faster",
            Unit::roundTime,
            rows);
    out.append("<section class=\"whole\">\n");
    element("h2", group.name());
    element("p", group.verdict(report.place()) + " " + group.limit());
    figure(figure::inline);
    out.append("</section>\n");
  }

  private static LadderFigure.Row row(Group group, Measurement m) {
    if (m.status() != Status.OK) {
      return new LadderFigure.Row(
          m.variant(),
          m.idea(),
          Double.NaN,
          Double.NaN,
          Double.NaN,
          ReportText.note(m),
          m.status() == Status.WRONG ? LadderFigure.Mark.WRONG : LadderFigure.Mark.NONE);
    }
    String label = Unit.timeOf(m.times().median());
    if (!m.equals(group.base())) {
      label += ", " + Unit.times(group.speedUp(m)) + " as fast";
    }
    boolean best = m.equals(group.fastest());
    return new LadderFigure.Row(
        m.variant(),
        m.idea(),
        m.times().median(),
        m.times().p10(),
        m.times().p90(),
        best ? label + (group.level().isEmpty() ? ", fastest" : ", ahead") : label,
        best ? LadderFigure.Mark.BEST : LadderFigure.Mark.NONE);
  }

  private void figures(String heading, String text, List<ReportPlots.Plot> plots) {
    if (plots.isEmpty()) {
      return;
    }
    out.append("<section>\n");
    element("h2", heading);
    element("p", text);
    for (ReportPlots.Plot plot : plots) {
      out.append("<div class=\"whole\">\n");
      element("h3", plot.heading());
      figure(plot.figure()::inline);
      out.append("</div>\n");
    }
    out.append("</section>\n");
  }

  private void figure(IntFunction<String> figure) {
    out.append("<figure class=\"wide\">\n").append(figure.apply(WIDE)).append("</figure>\n");
    out.append("<figure class=\"narrow\">\n").append(figure.apply(NARROW)).append("</figure>\n");
  }

  private void against() {
    KernelReport before = report.before();
    if (before == null) {
      return;
    }
    Against against = new Against(report, before);
    out.append("<section>\n");
    element("h2", against.title());
    HtmlTable.begin(
        out, "", "shape", "variant", "then (p10 to p90)", "now (p10 to p90)", "speed", "verdict");
    for (Against.Row each : against.rows()) {
      row(
          List.of(
              each.now().shape() + " in " + Group.small(each.now().precision()),
              each.now().variant(),
              range(each.then()),
              range(each.now()),
              Double.isNaN(each.speed()) ? "" : Unit.times(each.speed()),
              each.words()));
    }
    HtmlTable.end(out);
    element(
        "p",
        "Within noise: the ranges from p10 to p90 of both runs, in brackets, have a value in"
            + " common.");
    out.append("</section>\n");
  }

  private static String range(@Nullable Measurement m) {
    if (m == null || m.status() != Status.OK) {
      return "-";
    }
    Unit unit = Unit.time(m.times().median());
    return "%s (%s to %s)"
        .formatted(
            unit.with(m.times().median()),
            unit.number(m.times().p10()),
            unit.number(m.times().p90()));
  }

  private void row(List<String> cells) {
    HtmlTable.row(out, cells.stream().map(Svg::escape).toArray(String[]::new));
  }

  private void table() {
    if (groups.isEmpty()) {
      return;
    }
    boolean resources = report.measurements().stream().anyMatch(m -> m.resources() != null);
    Stream<String> heads = Stream.of("shape", "variant");
    heads =
        Stream.concat(
            heads,
            report.emulated()
                ? Stream.of("median, emulated (p10 to p90)")
                : Stream.of(
                    "median (p10 to p90)", "speed-up", "GFLOP/s", "GB/s", "of best", "error"));
    if (resources) {
      heads = Stream.concat(heads, Stream.of("registers", "shared", "threads"));
      heads = Stream.concat(heads, report.emulated() ? Stream.of() : Stream.of("occupancy"));
    }
    String[] all = heads.toArray(String[]::new);
    out.append("<section>\n");
    element("h2", "All figures");
    HtmlTable.begin(out, "numbers", all);
    for (Group group : groups) {
      for (Measurement m : group.all()) {
        cells(group, m, all.length);
      }
    }
    HtmlTable.end(out);
    if (!report.emulated()) {
      element("p", report.legend() + " Error: the worst of those looked at, of the one allowed.");
    }
    out.append("</section>\n");
  }

  private void cells(Group group, Measurement m, int columns) {
    if (m.status() != Status.OK) {
      out.append("<tr><td>").append(escape(group.name()));
      out.append("</td><td>").append(escape(m.variant()));
      String css = m.status() == Status.WRONG ? "note wrong" : "note";
      out.append("</td><td colspan=\"%s\" class=\"%s\">".formatted(columns - 2, css));
      out.append(escape(ReportText.note(m))).append("</td></tr>\n");
      return;
    }
    List<String> cells = new ArrayList<>(List.of(group.name(), m.variant(), range(m)));
    if (!report.emulated()) {
      cells.add(Unit.times(group.speedUp(m)));
      cells.add(Unit.digits(m.operationsPerSecond() / 1e9));
      cells.add(Unit.BYTES.number(m.bytesPerSecond()));
      cells.add(Group.hasRoofline(m) ? Unit.percent(m.ofRoofline()) : "-");
      cells.add(Unit.percent(m.error()));
    }
    Candidate.Resources launch = m.resources();
    if (launch != null) {
      cells.add(String.valueOf(launch.registers()));
      cells.add(String.valueOf(launch.sharedBytes()));
      cells.add(String.valueOf(launch.threads()));
      if (!report.emulated()) {
        cells.add(Unit.percent(launch.occupancy()));
      }
    }
    while (cells.size() < columns) {
      cells.add("-");
    }
    row(cells);
  }

  private static String resource() {
    try (InputStream in =
        Objects.requireNonNull(ReportPage.class.getResourceAsStream("report.css"), "report.css")) {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
