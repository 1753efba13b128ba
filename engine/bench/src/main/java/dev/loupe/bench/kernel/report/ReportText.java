package dev.loupe.bench.kernel.report;

import dev.loupe.bench.kernel.Candidate;
import dev.loupe.bench.kernel.Measurement;
import dev.loupe.bench.kernel.Measurement.Status;
import dev.loupe.export.TerminalText;
import dev.loupe.export.TextTable;
import dev.loupe.ops.Precision;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** A report for a terminal. */
final class ReportText {
  private final KernelReport report;
  private final int columns;
  private final StringBuilder out = new StringBuilder();

  ReportText(KernelReport report, int columns) {
    this.report = report;
    this.columns = columns;
  }

  @Override
  public String toString() {
    out.setLength(0);
    say(report.subject() + ", on " + report.device() + ".");
    if (report.emulated()) {
      say(KernelReport.EMULATED);
    }
    if (!report.measurements().isEmpty()) {
      say(report.letters());
    }
    ideas();
    for (Group group : Group.of(report.measurements())) {
      group(group);
    }
    launches();
    against();
    if (!report.measurements().isEmpty() && !report.emulated()) {
      out.append('\n');
      say(report.legend());
    }
    machine();
    return out.toString();
  }

  private void say(String sentence) {
    say("", sentence);
  }

  private void say(String start, String text) {
    lines(TextTable.wrap(start, text, columns));
  }

  private void lines(List<String> lines) {
    lines.forEach(line -> out.append(line).append('\n'));
  }

  private void ideas() {
    Map<String, String> ideas = Group.ideas(report.measurements());
    if (ideas.isEmpty()) {
      return;
    }
    out.append('\n');
    int width = ideas.keySet().stream().mapToInt(TerminalText::width).max().orElse(0);
    width = Math.min(width, columns / 3);
    for (Map.Entry<String, String> idea : ideas.entrySet()) {
      say(TerminalText.fit(idea.getKey(), width) + "  ", idea.getValue());
    }
  }

  private void group(Group group) {
    out.append('\n');
    say(group.name());
    boolean memory = group.fastest() != null && Group.memoryBound(group.fastest());
    List<Measurement> timed = group.timed();
    Unit time = unit(group);
    Unit operations =
        Unit.operations(
            timed.stream().mapToDouble(Measurement::operationsPerSecond).max().orElse(0));
    TextTable<Measurement> table = new TextTable<>();
    table.column("variant", 0, Measurement::variant);
    if (report.emulated()) {
      table.column(time.name() + ", emulated", 0, m -> time.number(m.times().median()));
    } else {
      boolean ceilings = timed.stream().anyMatch(Group::hasRoofline);
      table
          .column("median " + time.name(), 0, m -> time.number(m.times().median()))
          .column("p10..p90", 5, m -> range(m, time))
          .column("speed-up", 1, m -> Unit.times(group.speedUp(m)))
          .column(
              operations.name(), memory ? 6 : 3, m -> operations.number(m.operationsPerSecond()))
          .column(Unit.BYTES.name(), memory ? 3 : 6, m -> Unit.BYTES.number(m.bytesPerSecond()));
      if (ceilings) {
        table.column("of best", 2, m -> Group.hasRoofline(m) ? Unit.percent(m.ofRoofline()) : "-");
      }
    }
    lines(table.lines(group.all(), ReportText::note, columns));
    if (!report.emulated()) {
      say(group.verdict(report.place()));
      if (!group.limit().isEmpty()) {
        say(group.limit());
      }
    }
  }

  /** One for all times of a group; the fastest has at most a zero before its digits. */
  private static Unit unit(Group group) {
    Measurement fastest = group.fastest();
    return Unit.time(fastest == null ? 0 : 10 * fastest.times().median());
  }

  /** Why there are no times. */
  static String note(Measurement m) {
    return switch (m.status()) {
      case OK -> "";
      case WRONG -> "WRONG: " + m.why();
      case LEFT_OUT -> "left out: " + m.why();
    };
  }

  /** What launches take, of the last shape alone: most of it is the same for all. */
  private void launches() {
    List<Group> groups = Group.of(report.measurements());
    for (Precision precision : groups.stream().map(Group::precision).distinct().toList()) {
      Group last =
          groups.stream().filter(g -> g.precision() == precision).reduce((a, b) -> b).orElseThrow();
      List<Measurement> known = last.all().stream().filter(m -> m.resources() != null).toList();
      if (!known.isEmpty()) {
        out.append('\n');
        say("What a launch takes, for " + last.name() + ":");
        TextTable<Measurement> table = new TextTable<>();
        table.column("variant", 0, Measurement::variant);
        table.column("registers a thread", 1, m -> of(m).registers() + "");
        table.column("shared bytes", 2, m -> of(m).sharedBytes() + "");
        table.column("threads a block", 3, m -> of(m).threads() + "");
        if (!report.emulated()) {
          table.column("occupancy", 0, m -> Unit.percent(of(m).occupancy()));
        }
        lines(table.lines(known, m -> "", columns));
      }
    }
  }

  private static Candidate.Resources of(Measurement m) {
    return Objects.requireNonNull(m.resources());
  }

  private void against() {
    KernelReport before = report.before();
    if (before == null) {
      return;
    }
    Against against = new Against(report, before);
    out.append('\n');
    say(against.title() + ": " + against.summary());
    against.differences().forEach(this::say);
    List<Against.Row> rows = against.rows();
    for (Group group : Group.of(report.measurements())) {
      List<Against.Row> own = rows.stream().filter(r -> group.all().contains(r.now())).toList();
      out.append('\n');
      say(group.name());
      TextTable<Against.Row> table = new TextTable<>();
      table.column("variant", 0, r -> r.now().variant());
      Unit time = unit(group);
      table.column("then " + time.name(), 3, r -> time(r.then(), time));
      table.column("p10..p90", 5, r -> range(r.then(), time));
      table.column("now " + time.name(), 2, r -> time(r.now(), time));
      table.column("p10..p90", 4, r -> range(r.now(), time));
      if (!report.emulated()) {
        table.column("speed", 1, r -> Double.isNaN(r.speed()) ? "" : Unit.times(r.speed()));
      }
      table.column("verdict", 0, Against.Row::words);
      lines(table.lines(own, r -> "", columns));
    }
  }

  private static String time(@Nullable Measurement m, Unit unit) {
    return m == null || m.status() != Status.OK ? "-" : unit.number(m.times().median());
  }

  private static String range(@Nullable Measurement m, Unit unit) {
    return m == null || m.status() != Status.OK
        ? "-"
        : unit.number(m.times().p10()) + ".." + unit.number(m.times().p90());
  }

  private void machine() {
    out.append('\n');
    Ceiling.of(report).forEach(each -> say(each.sentence()));
    say(report.host());
    say(report.procedure());
  }
}
