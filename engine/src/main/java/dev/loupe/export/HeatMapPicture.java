package dev.loupe.export;

import dev.loupe.attention.AttentionMaps;
import dev.loupe.export.page.Palette;
import dev.loupe.generate.Token;
import java.awt.image.BufferedImage;
import java.awt.image.DataBufferInt;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import javax.imageio.IIOException;
import javax.imageio.ImageIO;
import javax.imageio.ImageWriter;
import javax.imageio.stream.ImageOutputStream;
import javax.imageio.stream.MemoryCacheImageOutputStream;

/**
 * Heat maps as a picture: layers down, heads across, query rows, key columns, one colour range 0..1
 * for all of them.
 */
final class HeatMapPicture {
  private static final int GROUND = 0xFFFFFF;
  private static final int TEXT = 0x1B1F26;
  private static final int MUTED = 0x586070;
  private static final int MASK = 0xD5D8DD;
  private static final int DIVIDER = 0xBB6927;
  private static final int LONGEST_LABEL = 110;
  private static final double[] TICKS = {0, 0.01, 0.05, 0.1, 0.25, 0.5, 1};

  private final MappedRun run;
  private final ColourScale scale;
  private final PictureText text;
  private final PictureLayout layout;
  private final BufferedImage image;
  private final int[] pixels;
  private final int[] colours = Palette.SEQUENTIAL_LIGHT.table(1024);
  private final List<PictureText.Line> lines = new ArrayList<>();

  private HeatMapPicture(MappedRun run, ColourScale scale, PictureText text) {
    this.run = run;
    this.scale = scale;
    this.text = text;
    AttentionMaps maps = run.maps();
    int widest = 0;
    for (int i = 0; i < run.tokens().size(); i++) {
      widest = Math.max(widest, text.width(rowLabel(i)));
    }
    int labelSpace = text.available() ? Math.min(LONGEST_LABEL, widest) + 6 : 0;
    this.layout =
        PictureLayout.of(maps.layers().length, maps.heads().length, maps.tokens(), labelSpace);
    this.image = new BufferedImage(layout.width(), layout.height(), BufferedImage.TYPE_INT_RGB);
    this.pixels = ((DataBufferInt) image.getRaster().getDataBuffer()).getData();
  }

  static void write(MappedRun run, ColourScale colour, Path file) throws IOException {
    BufferedImage image = draw(run, colour, PictureText.sansSerif());
    ImageWriter writer = ImageIO.getImageWritersByFormatName("png").next();
    try (OutputStream bytes = Files.newOutputStream(file); // a device or a pipe stays one
        ImageOutputStream out = new MemoryCacheImageOutputStream(bytes)) {
      writer.setOutput(out);
      writer.write(image);
    } catch (IIOException e) {
      throw e.getCause() instanceof IOException why ? why : e; // its own message says nothing
    } finally {
      writer.dispose();
    }
  }

  static BufferedImage draw(MappedRun run, ColourScale scale, PictureText text) {
    HeatMapPicture picture = new HeatMapPicture(run, scale, text);
    picture.draw();
    return picture.image;
  }

  private void draw() {
    Arrays.fill(pixels, GROUND);
    title();
    int[] layers = run.maps().layers();
    int[] heads = run.maps().heads();
    for (int l = 0; l < layers.length; l++) {
      for (int h = 0; h < heads.length; h++) {
        int x = layout.panelX(h);
        int y = layout.panelY(l);
        if (layout.captionSpace() > 0) {
          say(layers[l] + "." + heads[h], x, y - 5, 0, MUTED);
        }
        panel(layers[l], heads[h], x, y);
        divider(x, y);
        labels(x, y);
      }
    }
    legend();
    text.draw(image, lines);
  }

  private void panel(int layer, int head, int x, int y) {
    int cell = layout.cell();
    int pool = layout.pool();
    for (int i = 0; i < layout.cells(); i++) {
      float[] largest = new float[i + 1];
      int end = Math.min((i + 1) * pool, run.tokens().size());
      for (int query = i * pool; query < end; query++) {
        float[] row = run.maps().row(layer, head, query);
        for (int key = 0; key < row.length; key++) {
          largest[key / pool] = Math.max(largest[key / pool], row[key]);
        }
      }
      for (int j = 0; j < layout.cells(); j++) {
        fill(x + j * cell, y + i * cell, cell, cell, j > i ? MASK : colour(largest[j]));
      }
    }
  }

  /** Where the prompt ends: lines over the cells where they hide little, ticks outside always. */
  private void divider(int x, int y) {
    int prompt = run.promptLength();
    if (prompt < 1 || prompt >= run.tokens().size()) {
      return;
    }
    int at = prompt * layout.cell() / layout.pool();
    int side = layout.side();
    if (layout.cell() >= 4) {
      fill(x, y + at, side, 1, DIVIDER);
      fill(x + at, y, 1, side, DIVIDER);
    }
    fill(x - 5, y + at, 5, 1, DIVIDER);
    fill(x + side, y + at, 5, 1, DIVIDER);
    fill(x + at, y - 5, 1, 5, DIVIDER);
    fill(x + at, y + side, 1, 5, DIVIDER);
  }

  private void labels(int x, int y) {
    if (layout.labelSpace() == 0) {
      return;
    }
    int cell = layout.cell();
    int step = (PictureLayout.LABEL_PITCH + cell - 1) / cell;
    int room = layout.labelSpace() - 6;
    for (int i = 0; i < layout.cells(); i += step) {
      int token = i * layout.pool();
      int middle = i * cell + cell / 2 + 4; // baseline of a 12 px font, middle of its letters
      String number = " " + token;
      String label = text.fit(run.tokens().get(token).label(), room - text.width(number)) + number;
      int colour = token < run.promptLength() ? TEXT : DIVIDER;
      lines.add(new PictureText.Line(label, x - 6, y + middle, 1, false, false, colour));
      lines.add(
          new PictureText.Line(label, x + middle, y + layout.side() + 6, 1, true, false, colour));
    }
  }

  private String rowLabel(int token) {
    return run.tokens().get(token).label() + " " + token;
  }

  private void title() {
    int width = layout.width() - 2 * PictureLayout.MARGIN;
    int[] layers = run.maps().layers();
    int[] heads = run.maps().heads();
    String which =
        "%s, %s".formatted(MappedRun.numbered("layer", layers), MappedRun.numbered("head", heads));
    int y = PictureLayout.MARGIN + 12;
    lines.add(
        new PictureText.Line(
            text.fit("%s: %s; %s".formatted(run.modelName(), which, run.lengths()), width - 20),
            PictureLayout.MARGIN,
            y,
            0,
            false,
            true,
            TEXT));
    String start = run.tokens().stream().limit(200).map(Token::label).collect(Collectors.joining());
    say(text.fit(start, width), PictureLayout.MARGIN, y + 18, 0, MUTED);
  }

  private void legend() {
    int x = PictureLayout.MARGIN;
    int y = layout.panelsEnd() + 20;
    int length = 360;
    for (int i = 0; i < length; i++) {
      fill(x + i, y, 1, 12, colours[i * (colours.length - 1) / (length - 1)]);
    }
    int end = -1;
    for (double tick : TICKS) {
      int at = x + (int) Math.round(scale.position(tick) * (length - 1));
      fill(at, y + 12, 1, 4, MUTED);
      String number = tick == (int) tick ? Integer.toString((int) tick) : Double.toString(tick);
      if (at - text.width(number) / 2 > end) {
        say(number, at, y + 28, tick == 0 ? 0 : 0.5f, MUTED);
        end = at + text.width(number) / 2 + 4;
      }
    }
    fill(x + length + 24, y, 12, 12, MASK);
    say("not read: later tokens", x + length + 42, y + 10, 0, MUTED);
    String colour = "colour: " + scale.legend() + ", the same range for all heads";
    if (run.promptLength() > 0 && run.promptLength() < run.tokens().size()) {
      colour += "; after the orange line: generated";
    }
    say(colour, x, y + 46, 0, TEXT);
    String axes = "rows: queries, the tokens that read; columns: keys, the tokens they read";
    if (layout.pool() > 1) {
      axes = "%s; a cell is the largest of %2$d x %2$d weights".formatted(axes, layout.pool());
    }
    say(text.fit(axes, layout.width() - 2 * x), x, y + 62, 0, MUTED);
  }

  private int colour(double weight) {
    return colours[(int) Math.round(scale.position(weight) * (colours.length - 1))];
  }

  private void say(String words, int x, int y, float align, int rgb) {
    lines.add(new PictureText.Line(words, x, y, align, false, false, rgb));
  }

  private void fill(int x, int y, int width, int height, int rgb) {
    for (int row = y; row < y + height; row++) {
      int start = row * layout.width() + x;
      Arrays.fill(pixels, start, start + width, rgb);
    }
  }
}
