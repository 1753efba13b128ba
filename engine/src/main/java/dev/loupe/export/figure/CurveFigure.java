package dev.loupe.export.figure;

import dev.loupe.export.figure.Svg.Anchor;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.function.DoubleFunction;
import java.util.function.ToDoubleFunction;
import java.util.stream.DoubleStream;
import java.util.stream.Stream;

/**
 * Points of several kinds on two log scales, each kind with a colour, a mark and its name beside
 * its last point.
 *
 * @param title for those who hear it read
 * @param x the horizontal axis in words
 * @param y the vertical axis in words
 * @param marks what stands on the horizontal axis; its round values if empty
 * @param columns places with a name above the plot, from left to right; one that would touch the
 *     one before has none
 * @param ticks how values stand on the axes
 * @param limits what no point should pass: dashed, named where they end
 */
public record CurveFigure(
    String title,
    String x,
    String y,
    List<Mark> marks,
    List<Mark> columns,
    DoubleFunction<String> ticks,
    List<Curve> curves,
    List<Limit> limits) {
  private static final int LABEL = 12; // size of the font
  private static final int PITCH = 16; // from label to label
  private static final double MARK = 4.5;

  /** A place on the horizontal axis with a name. */
  public record Mark(double x, String label) {}

  /**
   * A point.
   *
   * @param tip what it says under a pointer
   */
  public record Point(double x, double y, String tip) {}

  /**
   * Points of one kind.
   *
   * @param joined whether a line goes through them
   * @param points at least one, from left to right
   */
  public record Curve(String name, boolean joined, List<Point> points) {
    public Curve {
      points = List.copyOf(points);
    }
  }

  /** A line of points from left to right, and what it says at its end. */
  public record Limit(String name, List<Point> points) {
    public Limit {
      points = List.copyOf(points);
    }
  }

  public CurveFigure {
    marks = List.copyOf(marks);
    columns = List.copyOf(columns);
    curves = List.copyOf(curves);
    limits = List.copyOf(limits);
  }

  /** For a page with {@link Svg#style}; so many pixels wide. */
  public String inline(int width) {
    Svg svg = new Svg();
    double longest =
        curves.stream().mapToDouble(c -> Svg.width(c.name, LABEL)).max().orElse(0) + 34;
    double left = 56;
    double right = width - Math.min(longest, width / 3.0);
    double top = 44;
    double bottom = top + Math.max(width < 600 ? 260 : 360, PITCH * (curves.size() + 6));
    LogAxis across =
        LogAxis.around(
            all(Point::x).min().orElseThrow(),
            all(Point::x).max().orElseThrow(),
            1.05,
            left,
            right);
    if (!marks.isEmpty()) { // exactly to the last place that has a name
      double first = marks.stream().mapToDouble(Mark::x).min().orElseThrow();
      double last = marks.stream().mapToDouble(Mark::x).max().orElseThrow();
      across = new LogAxis(first / 1.1, last, left, right);
    }
    LogAxis up =
        LogAxis.around(
            all(Point::y).min().orElseThrow(), all(Point::y).max().orElseThrow(), 1.2, bottom, top);
    axes(svg, across, up);
    for (Limit limit : limits) {
      limit(svg, limit, across, up);
    }
    for (int i = 0; i < curves.size(); i++) {
      curve(svg, curves.get(i), i, across, up);
    }
    names(svg, across, up, width);
    return svg.inline(title, width, bottom + 50);
  }

  private DoubleStream all(ToDoubleFunction<Point> coordinate) {
    return Stream.concat(
            curves.stream().flatMap(c -> c.points.stream()),
            limits.stream().flatMap(l -> l.points.stream()))
        .mapToDouble(coordinate);
  }

  private void axes(Svg svg, LogAxis across, LogAxis up) {
    for (double tick : up.ticks()) {
      double at = up.at(tick);
      svg.line("grid", across.start(), at, across.end(), at);
      svg.text("muted", Anchor.END, across.start() - 6, at + 4, ticks.apply(tick));
    }
    List<Mark> places =
        marks.isEmpty()
            ? across.ticks().stream().map(t -> new Mark(t, ticks.apply(t))).toList()
            : marks;
    for (Mark place : places) {
      svg.line("grid", across.at(place.x), up.start() + 4, across.at(place.x), up.end());
    }
    marks(svg, places, across, up.start() + 18);
    marks(svg, columns, across, up.end() - 6);
    svg.line("axis", across.start(), up.start(), across.end(), up.start());
    svg.text("muted", Anchor.START, 0, 14, y);
    svg.text("muted", Anchor.START, across.start(), up.start() + 40, x);
  }

  private static void marks(Svg svg, List<Mark> marks, LogAxis across, double y) {
    double end = Double.NEGATIVE_INFINITY;
    for (Mark mark : marks) {
      double at = across.at(mark.x);
      double half = Svg.width(mark.label, LABEL) / 2;
      if (at - half > end) {
        svg.text("muted", Anchor.MIDDLE, at, y, mark.label);
        end = at + half + 8;
      }
    }
  }

  private static String lines(List<Point> points, LogAxis across, LogAxis up) {
    StringBuilder d = new StringBuilder();
    for (Point point : points) {
      d.append(d.isEmpty() ? 'M' : 'L');
      d.append(Svg.at(across.at(point.x))).append(' ').append(Svg.at(up.at(point.y)));
    }
    return d.toString();
  }

  /** With its name along its last stretch. */
  private static void limit(Svg svg, Limit limit, LogAxis across, LogAxis up) {
    svg.path("limit", lines(limit.points, across, up));
    Point before = limit.points.get(Math.max(0, limit.points.size() - 2));
    Point last = limit.points.getLast();
    double dx = across.at(last.x) - across.at(before.x);
    double dy = up.at(before.y) - up.at(last.y);
    double angle = dx > 0 ? Math.toDegrees(Math.atan2(dy, dx)) : 0;
    double radians = Math.toRadians(angle);
    svg.turned(
        "limit-name",
        Anchor.END,
        across.at(last.x) - 8 * Math.cos(radians) - 7 * Math.sin(radians),
        up.at(last.y) + 8 * Math.sin(radians) - 7 * Math.cos(radians),
        angle,
        limit.name);
  }

  private static void curve(Svg svg, Curve curve, int style, LogAxis across, LogAxis up) {
    String css = css(style);
    if (curve.joined && curve.points.size() > 1) {
      svg.path("curve " + css, lines(curve.points, across, up));
    }
    for (Point point : curve.points) {
      svg.begin(point.tip);
      svg.path("mark " + css, mark(style, across.at(point.x), up.at(point.y)));
      svg.end();
    }
  }

  /** Eight colours; after them the same again, dashed. */
  private static String css(int style) {
    return "s" + style % 8 + (style % 16 >= 8 ? " dashed" : "");
  }

  private static String mark(int style, double x, double y) {
    String outline =
        switch (style % 8) {
          case 0 -> "m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z"; // circle
          case 1 -> "m-4 -4h8v8h-8z"; // square
          case 2 -> "m0 -5.5l5 9h-10z"; // triangle
          case 3 -> "m0 -6l6 6l-6 6l-6 -6z"; // diamond
          case 4 -> "m0 5.5l5 -9h-10z"; // triangle that stands on its tip
          case 5 -> "m0 -5.5l5 3.5l-2 6h-6l-2 -6z"; // pentagon
          case 6 -> "m-5 -2.5h10v5h-10z"; // bar
          default -> "m-1.5 -5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z"; // plus
        };
    return "M" + Svg.at(x) + " " + Svg.at(y) + outline;
  }

  /** A name beside each curve's last point, moved up or down where two would touch. */
  private void names(Svg svg, LogAxis across, LogAxis up, int width) {
    List<Integer> order = new ArrayList<>();
    for (int i = 0; i < curves.size(); i++) {
      order.add(i);
    }
    order.sort(Comparator.comparingDouble(i -> up.at(curves.get(i).points.getLast().y)));
    List<Double> wanted = order.stream().map(i -> up.at(curves.get(i).points.getLast().y)).toList();
    double least = // below what the limits say
        limits.stream().mapToDouble(l -> up.at(l.points.getLast().y) + 6).max().orElse(up.end());
    List<Double> places = apart(wanted, PITCH, least, up.start());
    for (int n = 0; n < order.size(); n++) {
      Curve curve = curves.get(order.get(n));
      double x = across.at(curve.points.getLast().x);
      double y = wanted.get(n);
      double to = x + 20;
      svg.line("leader", x + MARK + 2, y, to - 2, places.get(n));
      svg.text(
          "curve-name " + css(order.get(n)),
          Anchor.START,
          to,
          places.get(n) + 4,
          Svg.cut(curve.name, width - to, LABEL));
    }
  }

  /**
   * Places as near as can be to those wanted, but so far apart: neighbours that would touch form a
   * block around the middle of what they want.
   *
   * @param wanted from small to large
   */
  static List<Double> apart(List<Double> wanted, double pitch, double least, double most) {
    record Block(int first, int count, double middle) {
      double start(double pitch) {
        return middle - (count - 1) * pitch / 2;
      }
    }
    List<Block> blocks = new ArrayList<>();
    for (int i = 0; i < wanted.size(); i++) {
      Block block = new Block(i, 1, Math.clamp(wanted.get(i), least, most));
      while (!blocks.isEmpty()) {
        Block before = blocks.getLast();
        double end = before.start(pitch) + before.count * pitch;
        if (block.start(pitch) >= end) {
          break;
        }
        int count = before.count + block.count;
        double middle = (before.middle * before.count + block.middle * block.count) / count;
        double half = (count - 1) * pitch / 2;
        middle = Math.max(least + half, Math.min(most - half, middle));
        block = new Block(before.first, count, middle);
        blocks.removeLast();
      }
      blocks.add(block);
    }
    List<Double> places = new ArrayList<>();
    for (Block block : blocks) {
      for (int i = 0; i < block.count; i++) {
        places.add(block.start(pitch) + i * pitch);
      }
    }
    return places;
  }
}
