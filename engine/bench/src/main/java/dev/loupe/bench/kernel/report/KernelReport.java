package dev.loupe.bench.kernel.report;

import dev.loupe.bench.Machine;
import dev.loupe.bench.kernel.Candidate.Resources;
import dev.loupe.bench.kernel.Device.Roofline;
import dev.loupe.bench.kernel.KernelComparison;
import dev.loupe.bench.kernel.Measurement;
import java.math.BigDecimal;
import java.time.Instant;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * What came of a comparison, for people, spreadsheets, documents and browsers. An emulated device
 * says nothing of a real one: its times are named so, and no rate, ceiling, speed-up or occupancy
 * is given.
 *
 * @param started in UTC, to the second
 * @param interrupted whether this is not all that was asked for
 * @param threads of the CPU
 * @param backend {@code cpu} or {@code cuda}
 * @param device what ran it, for people
 * @param emulated whether times say nothing of such a device; rooflines and occupancy are dropped
 *     then
 * @param measurements in the order of shapes, precisions, and the ladder; may be empty
 * @param before an older run to hold this one against
 */
public record KernelReport(
    Instant started,
    boolean interrupted,
    Machine machine,
    int threads,
    String backend,
    String device,
    boolean emulated,
    KernelComparison.Settings settings,
    List<Measurement> measurements,
    @Nullable KernelReport before) {
  private static final Roofline NONE = new Roofline(Double.NaN, Double.NaN);

  public KernelReport {
    started = Instant.ofEpochSecond(started.getEpochSecond());
    measurements =
        emulated
            ? measurements.stream().map(KernelReport::emulated).toList()
            : List.copyOf(measurements);
  }

  /** Without what only a real device can say. */
  private static Measurement emulated(Measurement m) {
    Resources own = m.resources();
    return new Measurement(
        m.shape(),
        m.variant(),
        m.idea(),
        m.precision(),
        m.status(),
        m.why(),
        m.error(),
        m.microseconds(),
        m.work(),
        NONE,
        own == null
            ? null
            : new Resources(own.registers(), own.sharedBytes(), own.threads(), Double.NaN));
  }

  /** This run beside an older one, which all formats then say. */
  public KernelReport against(@Nullable KernelReport older) {
    return new KernelReport(
        started,
        interrupted,
        machine,
        threads,
        backend,
        device,
        emulated,
        settings,
        measurements,
        older);
  }

  /** Tables for a terminal of so many columns, and what to make of them. */
  public String text(int columns) {
    return new ReportText(this, columns).toString();
  }

  /** One object on one line, schema {@code loupe-kernels/1}; what is not there is null. */
  public String json() {
    return ReportJson.write(this);
  }

  /** A line for each measurement, under a line of names (RFC 4180, lines end with a line feed). */
  public String csv() {
    return ReportTables.csv(this);
  }

  /** Tables for a document. */
  public String markdown() {
    return ReportTables.markdown(this);
  }

  /** A page for a browser: one file, nothing fetched, no script. */
  public String html() {
    return new ReportPage(this).toString();
  }

  /**
   * Reads what {@link #json} wrote; what it says of another run is left out.
   *
   * @throws IllegalArgumentException if it is something else, with the reason
   */
  public static KernelReport parse(String json) {
    return ReportJson.parse(json);
  }

  /** What it is about, in a few words. */
  String subject() {
    if (measurements.isEmpty()) {
      return "Nothing was measured";
    }
    String summary = measurements.getFirst().shape().operation().summary();
    long variants = measurements.stream().map(Measurement::variant).distinct().count();
    return "%s, %s"
        .formatted(
            Character.toUpperCase(summary.charAt(0)) + summary.substring(1),
            variants == 1 ? "one variant" : variants + " variants");
  }

  /** What the letters of the shapes stand for. */
  String letters() {
    return measurements.stream()
        .flatMap(m -> m.shape().operation().axes().stream())
        .distinct()
        .map(
            axis ->
                switch (axis) {
                  case "T" -> "T tokens";
                  case "H" -> "H heads";
                  case "D" -> "D numbers a head";
                  case "M", "R" -> axis + " rows";
                  case "K" -> "K inputs";
                  case "N" -> "N outputs";
                  default -> axis + " numbers a row";
                })
        .collect(Collectors.joining(", ", "Shapes: ", "."));
  }

  /** What the ceilings are those of. */
  String place() {
    return backend.equals("cpu") ? "this machine" : "this card";
  }

  /** What the figures mean; empty for an emulated device, which has but times. */
  String legend() {
    return emulated
        ? ""
        : "A time is the median of the runs, and 8 of 10 runs lie from p10 to p90. Speed-up: how"
            + " many times as fast as the first variant that is right. Operations and bytes are"
            + " counted by formula, as the least that this work needs, whoever does it. Of best:"
            + " of what %s's memory or arithmetic, whichever is the limit, gave at best in the same minute (the roofline)."
                .formatted(place());
  }

  /** How it was measured, in a sentence. */
  String procedure() {
    return "%s: up to %s runs of each, in turns, with cold caches, %s s of each at most%s."
        .formatted(
            time(started),
            settings.samples(),
            BigDecimal.valueOf(settings.seconds()).stripTrailingZeros().toPlainString(),
            interrupted ? "; interrupted, so this is not all" : "");
  }

  static String time(Instant instant) {
    return instant.toString().replace('T', ' ').replace("Z", " UTC");
  }

  /** The machine in a sentence. */
  String host() {
    StringBuilder text = new StringBuilder();
    text.append(machine.cpu()).append("; ").append(machine.processors());
    text.append(machine.processors() == 1 ? " processor" : " processors");
    text.append(", ").append(threads).append(threads == 1 ? " thread used" : " threads used");
    if (machine.vectorBits() > 0) {
      text.append(", ").append(machine.vectorBits()).append("-bit vectors");
    }
    text.append("; Java ").append(machine.java());
    if (machine.load() >= 0) {
      text.append(String.format(Locale.ROOT, "; load before %.2f", machine.load()));
    }
    return text.append('.').toString();
  }

  static final String EMULATED =
      "An emulated card: the times only show that everything ran; they say nothing of a GPU.";
}
