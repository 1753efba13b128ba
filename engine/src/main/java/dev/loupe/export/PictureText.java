package dev.loupe.export;

import java.awt.AWTError;
import java.awt.Color;
import java.awt.Font;
import java.awt.FontMetrics;
import java.awt.Graphics2D;
import java.awt.RenderingHints;
import java.awt.geom.AffineTransform;
import java.awt.image.BufferedImage;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/** Text in a picture, or none where Java finds no font: a server may have none installed. */
final class PictureText {
  private final @Nullable Font font;

  private PictureText(@Nullable Font font) {
    this.font = font;
  }

  /** Text in the font that {@code source} gives, if Java can measure with it. */
  static PictureText with(Supplier<Font> source) {
    try {
      Font font = source.get();
      metrics(font).stringWidth("0");
      return new PictureText(font);
    } catch (RuntimeException | LinkageError | InternalError | AWTError noFonts) {
      return new PictureText(null);
    }
  }

  static PictureText sansSerif() {
    return with(() -> new Font(Font.SANS_SERIF, Font.PLAIN, 12));
  }

  boolean available() {
    return font != null;
  }

  /** Width of {@code text} in pixels; 0 without a font. */
  int width(String text) {
    return font == null ? 0 : metrics(font).stringWidth(text);
  }

  /**
   * {@code label} as this font can show it, at most {@code width} pixels wide: characters that it
   * lacks become U+1F600, and what is too long ends in an ellipsis.
   */
  String fit(String label, int width) {
    if (font == null) {
      return "";
    }
    StringBuilder shown = new StringBuilder();
    label
        .codePoints()
        .forEach(
            c -> {
              if (font.canDisplay(c) && !Character.isISOControl(c)) {
                shown.appendCodePoint(c);
              } else {
                shown.append("U+%04X".formatted(c));
              }
            });
    FontMetrics metrics = metrics(font);
    if (metrics.stringWidth(shown.toString()) <= width) {
      return shown.toString();
    }
    while (!shown.isEmpty() && metrics.stringWidth(shown + "…") > width) {
      shown.setLength(shown.offsetByCodePoints(shown.length(), -1));
    }
    return shown + "…";
  }

  /** Draws lines of text on {@code image}; does nothing without a font. */
  void draw(BufferedImage image, Iterable<Line> lines) {
    if (font == null) {
      return;
    }
    Graphics2D g = image.createGraphics();
    g.setRenderingHint(
        RenderingHints.KEY_TEXT_ANTIALIASING, RenderingHints.VALUE_TEXT_ANTIALIAS_ON);
    g.setRenderingHint(
        RenderingHints.KEY_FRACTIONALMETRICS, RenderingHints.VALUE_FRACTIONALMETRICS_ON);
    AffineTransform upright = g.getTransform();
    for (Line line : lines) {
      g.setFont(line.bold ? font.deriveFont(Font.BOLD) : font);
      g.setColor(new Color(line.rgb));
      g.translate(line.x, line.y);
      if (line.rising) {
        g.rotate(-Math.PI / 2);
      }
      float shift = -line.align * g.getFontMetrics().stringWidth(line.text);
      g.drawString(line.text, shift, 0);
      g.setTransform(upright);
    }
    g.dispose();
  }

  /**
   * A line of text.
   *
   * @param x of the anchor on the baseline
   * @param y of the baseline
   * @param align where in the text the anchor is: 0 at its start, 0.5 in the middle, 1 at its end
   * @param rising whether it runs from bottom to top
   */
  record Line(String text, int x, int y, float align, boolean rising, boolean bold, int rgb) {}

  private static FontMetrics metrics(Font font) {
    return new BufferedImage(1, 1, BufferedImage.TYPE_INT_RGB)
        .createGraphics()
        .getFontMetrics(font);
  }
}
