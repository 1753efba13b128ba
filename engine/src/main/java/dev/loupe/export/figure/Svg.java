package dev.loupe.export.figure;

import dev.loupe.export.page.PageModules;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Objects;

/**
 * A drawing. Its colours and fonts come from classes of {@link #style}, which a page has once and a
 * file of its own carries in itself, so that both follow the reader's light or dark.
 */
public final class Svg {
  /** Of the font's size: the mean of a wide sans-serif, DejaVu, whose digits are 0.64 wide. */
  private static final double CHARACTER = 0.62;

  /** Where a text's anchor is. */
  enum Anchor {
    START,
    MIDDLE,
    END
  }

  private final StringBuilder body = new StringBuilder();

  /** An empty drawing. */
  public Svg() {}

  /** What every page with such drawings needs in its style. */
  public static String style() {
    return resource("colours.css") + PageModules.read("figure.css").orElseThrow();
  }

  /** The style of a report's page: its drawings, text and tables. */
  public static String pageStyle() {
    return style() + resource("page.css");
  }

  private static String resource(String name) {
    try (InputStream in = Objects.requireNonNull(Svg.class.getResourceAsStream(name), name)) {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** {@code text} as text or as an attribute's value in double quotes, of XML and of HTML. */
  public static String escape(String text) {
    StringBuilder safe = new StringBuilder();
    text.codePoints()
        .forEach(
            c -> {
              switch (c) {
                case '&' -> safe.append("&amp;");
                case '<' -> safe.append("&lt;");
                case '>' -> safe.append("&gt;");
                case '"' -> safe.append("&quot;");
                case '\t', '\n' -> safe.append(' ');
                default -> {
                  boolean none = c < 0x20 || c == 0xFFFE || c == 0xFFFF || (c >>> 11) == 0x1B;
                  safe.appendCodePoint(none ? 0xFFFD : c); // XML has no such characters
                }
              }
            });
    return safe.toString();
  }

  private Svg add(String line) {
    body.append(line).append('\n');
    return this;
  }

  /** To a tenth of a pixel. */
  static String at(double pixels) {
    return String.format(Locale.ROOT, "%.1f", pixels);
  }

  Svg line(String css, double x1, double y1, double x2, double y2) {
    return path(css, "M%s %sL%s %s".formatted(at(x1), at(y1), at(x2), at(y2)));
  }

  Svg path(String css, String d) {
    return add("<path class=\"%s\" d=\"%s\"/>".formatted(css, d));
  }

  Svg bar(String css, double x, double y, double width, double height) {
    return add(
        "<rect class=\"%s\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\"/>"
            .formatted(css, at(x), at(y), at(width), at(height)));
  }

  Svg text(String css, Anchor anchor, double x, double y, String text) {
    return turned(css, anchor, x, y, 0, text);
  }

  /** Text that is turned counter-clockwise around its anchor, by degrees. */
  Svg turned(String css, Anchor anchor, double x, double y, double degrees, String text) {
    String place =
        degrees == 0
            ? "x=\"%s\" y=\"%s\"".formatted(at(x), at(y))
            : "transform=\"translate(%s %s) rotate(%s)\"".formatted(at(x), at(y), at(-degrees));
    return add(
        "<text class=\"%s\" text-anchor=\"%s\" %s>%s</text>"
            .formatted(css, anchor.name().toLowerCase(Locale.ROOT), place, escape(text)));
  }

  /** What follows, up to {@link #end}, says {@code tip} under a pointer. */
  Svg begin(String tip) {
    return add("<g><title>%s</title>".formatted(escape(tip)));
  }

  /**
   * Likewise.
   *
   * @param name how a program finds it: its {@code data-name}
   */
  Svg begin(String tip, String name) {
    return add("<g data-name=\"%s\"><title>%s</title>".formatted(escape(name), escape(tip)));
  }

  Svg end() {
    return add("</g>");
  }

  /** For a page that has the style. */
  String inline(String label, int width, double height) {
    return element("", "", label, width, height);
  }

  /** For a file of its own. */
  String file(String label, int width, double height) {
    return element(
        " xmlns=\"http://www.w3.org/2000/svg\"",
        "<style>\n%s</style>\n<rect class=\"ground\" width=\"100%%\" height=\"100%%\"/>\n"
            .formatted(style()),
        label,
        width,
        height);
  }

  private String element(String space, String start, String label, int width, double height) {
    int whole = (int) Math.ceil(height);
    return "<svg%s class=\"figure\" role=\"img\" aria-label=\"%s\" width=\"%s\" height=\"%s\" viewBox=\"0 0 %s %s\">\n"
            .formatted(space, escape(label), width, whole, width, whole)
        + start
        + body
        + "</svg>\n";
  }

  /** How wide a text is, about. */
  static double width(String text, double size) {
    return CHARACTER * size * text.codePointCount(0, text.length());
  }

  private static int most(double width, double size) {
    return Math.max(4, (int) (width / (CHARACTER * size)));
  }

  /** {@code text}, cut with an ellipsis where it would be wider, about. */
  static String cut(String text, double width, double size) {
    int most = most(width, size);
    int length = text.codePointCount(0, text.length());
    return length <= most ? text : text.substring(0, text.offsetByCodePoints(0, most - 1)) + "…";
  }

  /** {@code text} in lines that are so wide at most, about; a longer word is cut. */
  static List<String> wrap(String text, double width, double size) {
    int most = most(width, size);
    List<String> lines = new ArrayList<>();
    String line = "";
    for (String each : text.strip().split("\\s+", -1)) {
      String word = cut(each, width, size);
      if (line.isEmpty()) {
        line = word;
      } else if (line.length() + 1 + word.length() <= most) {
        line += " " + word;
      } else {
        lines.add(line);
        line = word;
      }
    }
    if (!line.isEmpty()) {
      lines.add(line);
    }
    return lines;
  }
}
