package dev.loupe.export.figure;

import dev.loupe.export.figure.Svg.Anchor;
import java.util.List;
import java.util.function.DoubleFunction;

/**
 * Bars on a log scale, one below the other in the order given: times of a ladder of kernels, or
 * counts of anything.
 *
 * @param title for a file of its own, and for those who hear it read
 * @param axis what the bars are
 * @param ticks how values stand on the axis, e.g. {@code 10 ms}
 */
public record LadderFigure(
    String title, String axis, DoubleFunction<String> ticks, List<Row> rows) {
  private static final int WIDE = 600; // from here on bars stand beside the names
  private static final int NAME = 14; // sizes of fonts
  private static final int NOTE = 12;
  private static final int LINE = 16; // of a note
  private static final int BAR = 18;

  /**
   * A bar.
   *
   * @param note below the name; may be empty
   * @param value above 0; NaN for no bar
   * @param low start of the whisker; NaN for none
   * @param high end of the whisker
   * @param label beside the bar, or why there is none
   */
  public record Row(
      String name, String note, double value, double low, double high, String label, Mark mark) {
    /** A bar without a whisker. */
    public static Row of(String name, double value, String label) {
      return new Row(name, "", value, Double.NaN, Double.NaN, label, Mark.NONE);
    }

    private double least() {
      return Double.isNaN(low) ? value : Math.min(value, low);
    }

    private double most() {
      return Double.isNaN(high) ? value : Math.max(value, high);
    }
  }

  /** What sets a row apart. */
  public enum Mark {
    NONE,
    BEST,
    WRONG
  }

  public LadderFigure {
    rows = List.copyOf(rows);
  }

  /** For a page with {@link Svg#style}; so many pixels wide. */
  public String inline(int width) {
    Svg svg = new Svg();
    return svg.inline(title, width, draw(svg, width, 0));
  }

  /** A file of its own, with the title. */
  public String file(int width) {
    Svg svg = new Svg();
    double top = 12;
    for (String line : Svg.wrap(title, width - 16, 16)) {
      top += 20;
      svg.text("title", Anchor.START, 8, top - 4, line);
    }
    return svg.file(title, width, draw(svg, width, top + 8));
  }

  private double draw(Svg svg, int width, double top) {
    boolean beside = width >= WIDE;
    double left = beside ? 290 : 4;
    double right = beside ? width - 215 : width - 12;
    List<Row> bars = rows.stream().filter(r -> r.value > 0).toList();
    double bottom = top + rows.stream().mapToDouble(r -> height(r, width, beside)).sum();
    if (!bars.isEmpty()) {
      LogAxis scale =
          LogAxis.around(
              bars.stream().mapToDouble(Row::least).min().orElseThrow(),
              bars.stream().mapToDouble(Row::most).max().orElseThrow(),
              1.2,
              left,
              right);
      double end = axis(svg, scale, width, top, bottom);
      double y = top;
      for (Row row : rows) {
        row(svg, row, scale, width, y, beside);
        y += height(row, width, beside);
      }
      return end;
    }
    double y = top;
    for (Row row : rows) {
      row(svg, row, new LogAxis(1, 10, left, right), width, y, beside);
      y += height(row, width, beside);
    }
    return bottom;
  }

  /** Returns where it ends. */
  private double axis(Svg svg, LogAxis scale, int width, double top, double bottom) {
    double end = Double.NEGATIVE_INFINITY;
    for (double tick : scale.ticks()) {
      double x = scale.at(tick);
      svg.line("grid", x, top, x, bottom + 4);
      String label = ticks.apply(tick);
      double half = Svg.width(label, NOTE) / 2;
      if (x - half > end) {
        svg.text("muted", Anchor.MIDDLE, Math.clamp(x, half, width - half), bottom + 18, label);
        end = x + half + 8;
      }
    }
    double y = bottom + 38 - LINE;
    for (String line : Svg.wrap(axis, width - scale.start(), NOTE)) {
      y += LINE;
      svg.text("muted", Anchor.START, scale.start(), y, line);
    }
    return y + 8;
  }

  private static List<String> note(Row row, int width, boolean beside) {
    return Svg.wrap(row.note, beside ? 270 : width - 8, NOTE);
  }

  /** Why there is no bar. */
  private static List<String> reason(Row row, int width, boolean beside) {
    return row.value > 0 ? List.of() : Svg.wrap(row.label, beside ? width - 300 : width - 8, NOTE);
  }

  private static double height(Row row, int width, boolean beside) {
    int notes = note(row, width, beside).size();
    int reasons = reason(row, width, beside).size();
    double bar = row.value > 0 ? BAR + 6 : 0;
    return beside
        ? Math.max(20 + LINE * notes, Math.max(BAR + 4, LINE * reasons + 4)) + 12
        : 20 + LINE * (notes + reasons) + bar + 12;
  }

  private static void row(Svg svg, Row row, LogAxis scale, int width, double y, boolean beside) {
    svg.begin(row.name + ": " + row.label + (row.note.isEmpty() ? "" : " (" + row.note + ")"));
    boolean bar = row.value > 0;
    double room = (beside ? 270 : width - (bar ? Svg.width(row.label, 13) + 16 : 8)) * 0.95;
    String name = Svg.cut(row.name, room, NAME);
    svg.text(row.mark == Mark.WRONG ? "name wrong" : "name", Anchor.START, 0, y + 15, name);
    double below = y + 15;
    for (String line : note(row, width, beside)) {
      below += LINE;
      svg.text("muted", Anchor.START, 0, below, line);
    }
    double reason = beside ? y - 1 : below;
    for (String line : reason(row, width, beside)) {
      reason += LINE;
      String css = row.mark == Mark.WRONG ? "warning" : "muted";
      svg.text(css, Anchor.START, beside ? scale.start() : 0, reason, line);
    }
    if (bar) {
      bar(svg, row, scale, beside ? y + 2 : below + 6);
      String css = row.mark == Mark.BEST ? "value best" : "value";
      if (beside) {
        svg.text(css, Anchor.START, scale.at(row.most()) + 8, y + 16, row.label);
      } else {
        svg.text(css, Anchor.END, width - 2, y + 15, row.label);
      }
    }
    svg.end();
  }

  private static void bar(Svg svg, Row row, LogAxis scale, double y) {
    double length = scale.at(row.value) - scale.start();
    svg.bar(row.mark == Mark.BEST ? "bar best" : "bar", scale.start(), y, length, BAR);
    if (!Double.isNaN(row.low)) {
      double middle = y + BAR / 2.0;
      double low = scale.at(row.low);
      double high = scale.at(row.high);
      String path =
          "M%s %sH%sM%s %sv8M%s %sv8"
              .formatted(
                  Svg.at(low),
                  Svg.at(middle),
                  Svg.at(high),
                  Svg.at(low),
                  Svg.at(middle - 4),
                  Svg.at(high),
                  Svg.at(middle - 4));
      svg.path("whisker halo", path).path("whisker", path); // seen on the bar as on the ground
    }
  }
}
