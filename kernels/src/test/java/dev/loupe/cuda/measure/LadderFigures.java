package dev.loupe.cuda.measure;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Formatter;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.function.ToLongFunction;

/**
 * A figure for each step of the attention ladder: what of the score matrix is worked on at once and
 * where it lies, and what the emulator counted beside the other steps. Run as a program in the
 * module's folder, it writes doc/attention-v1.svg and so on.
 */
final class LadderFigures {
  static final Path FOLDER = Path.of("doc");

  /**
   * The scores that one block of threads holds at a time, of T = 256 rows and keys.
   *
   * @param row first row of the example
   * @param key first key
   * @param rows Br; all: the whole triangle
   * @param keys Bc
   * @param place where scores and probabilities live
   */
  private record Held(int row, int key, int rows, int keys, Place place, String what) {}

  private enum Place {
    GLOBAL("#c2410c", "global memory"),
    REGISTERS("#1d4ed8", "registers"),
    SHARED("#0f766e", "shared memory");

    private final String colour;
    private final String label;

    Place(String colour, String label) {
      this.colour = colour;
      this.label = label;
    }
  }

  private static final int T = 256;
  private static final Map<String, Held> HELD =
      Map.of(
          "v1", new Held(0, 0, T, T, Place.GLOBAL, "all scores, T x T"),
          "v2", new Held(176, 64, 1, 32, Place.REGISTERS, "32 scores of a row: a warp"),
          "v3", new Held(128, 64, 64, 32, Place.SHARED, "64 x 32 scores: a block"),
          "v4", new Held(128, 64, 64, 64, Place.REGISTERS, "64 x 64: four warps of 16 rows"),
          "v5", new Held(128, 64, 128, 64, Place.REGISTERS, "128 x 64: four warps of 32 rows"),
          "v6", new Held(128, 64, 128, 64, Place.REGISTERS, "128 x 64: two warpgroups"));

  private record Metric(String title, String unit, double per, ToLongFunction<Counts> value) {}

  private static final List<Metric> METRICS =
      List.of(
          new Metric("asked of global memory", "KB", 1024, c -> c.read() + c.written()),
          new Metric("multiply-adds of float units", "K", 1000, Counts::multiplyAdds),
          new Metric("on tensor cores", "K", 1000, Counts::tensorMultiplyAdds),
          new Metric("trips to shared memory", "K", 1000, Counts::wavefronts));

  private static final int WIDTH = 720;
  private static final int HEIGHT = 250;
  private static final int SIDE = 168; // of the matrix
  private static final int BARS = 470; // where they begin
  private static final int LONGEST = 170;

  private LadderFigures() {}

  public static void main(String[] args) throws IOException {
    Files.createDirectories(FOLDER);
    for (Map.Entry<String, String> figure : all().entrySet()) {
      Files.writeString(FOLDER.resolve(figure.getKey()), figure.getValue());
    }
  }

  /** The figures by the names of their files. */
  static Map<String, String> all() throws IOException {
    List<Counts> ladder =
        Counts.committed().stream().filter(c -> c.family().equals("attention")).toList();
    Map<String, String> figures = new TreeMap<>();
    for (Counts step : ladder) {
      figures.put("attention-%s.svg".formatted(step.variant()), figure(ladder, step));
    }
    return figures;
  }

  private static String figure(List<Counts> ladder, Counts step) {
    Formatter svg = new Formatter(Locale.ROOT);
    svg.format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\""
            + " font-family=\"system-ui, sans-serif\" font-size=\"12\" role=\"img\">\n",
        WIDTH, HEIGHT, WIDTH);
    svg.format(
        "<title>attention %s: what it holds, and what it asks for</title>\n", step.variant());
    svg.format(
        "<rect width=\"%d\" height=\"%d\" rx=\"6\" fill=\"#ffffff\" stroke=\"#d4d4d8\"/>\n",
        WIDTH, HEIGHT);
    matrix(svg, Objects.requireNonNull(HELD.get(step.variant()), step.variant()));
    int y = 26;
    for (Metric metric : METRICS) {
      bars(svg, metric, ladder, step, y);
      y += 54;
    }
    return svg.format("</svg>\n").toString();
  }

  private static void matrix(Formatter svg, Held held) {
    int left = 36;
    int top = 34;
    double scale = (double) SIDE / T;
    text(svg, left, 22, "#18181b", "start", "scores: rows down, keys across");
    svg.format(
        "<path d=\"M%d %dv%dh%dz\" fill=\"%s\" stroke=\"#71717a\"/>\n",
        left, top, SIDE, SIDE, held.place == Place.GLOBAL ? held.place.colour : "#e4e4e7");
    if (held.place != Place.GLOBAL) {
      svg.format(
          "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n",
          left + held.key * scale,
          top + held.row * scale,
          held.keys * scale,
          Math.max(2, held.rows * scale),
          held.place.colour);
    }
    svg.format(
        "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#71717a\"/>\n",
        left, top, SIDE, SIDE);
    text(svg, left, top + SIDE + 19, held.place.colour, "start", held.what);
    text(svg, left, top + SIDE + 36, held.place.colour, "start", "held in " + held.place.label);
  }

  /** One bar a step, on a scale of tens that all figures share; that of this step is dark. */
  private static void bars(Formatter svg, Metric metric, List<Counts> ladder, Counts step, int y) {
    text(svg, BARS - 12, y + 4, "#18181b", "end", metric.title);
    double least = Double.POSITIVE_INFINITY;
    double most = 0;
    for (Counts each : ladder) {
      double value = metric.value.applyAsLong(each) / metric.per;
      if (value > 0) {
        least = Math.min(least, value);
        most = Math.max(most, value);
      }
    }
    int at = y - 8;
    String label = "";
    int labelX = BARS;
    int labelY = y;
    for (Counts each : ladder) {
      double value = metric.value.applyAsLong(each) / metric.per;
      boolean here = each.equals(step);
      double decades = Math.max(1, Math.log10(most / least));
      double length = value == 0 ? 1 : 24 + (LONGEST - 24) * Math.log10(value / least) / decades;
      svg.format(
          "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"7\" fill=\"%s\"/>\n",
          BARS, at, length, here ? "#3f3f46" : "#d4d4d8");
      if (here) {
        labelX = (int) (BARS + length + 6);
        labelY = at + 8;
        label =
            value == 0
                ? "none"
                : String.format(
                    Locale.ROOT, value < 100 ? "%.1f %s" : "%,.0f %s", value, metric.unit);
      }
      at += 9;
    }
    text(svg, labelX, labelY, "#18181b", "start", label); // over the bars below it
  }

  private static void text(Formatter svg, int x, int y, String colour, String anchor, String text) {
    svg.format(
        "<text x=\"%d\" y=\"%d\" fill=\"%s\" stroke=\"#ffffff\" stroke-width=\"3\""
            + " paint-order=\"stroke\" text-anchor=\"%s\">%s</text>\n",
        x, y, colour, anchor, text);
  }
}
