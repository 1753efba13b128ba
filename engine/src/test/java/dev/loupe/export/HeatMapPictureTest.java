package dev.loupe.export;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.attention.AttentionMaps;
import dev.loupe.export.page.Palette;
import dev.loupe.generate.Generation;
import java.awt.image.BufferedImage;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Optional;
import javax.imageio.ImageIO;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class HeatMapPictureTest {
  private static final int MASK = 0xD5D8DD;

  @TempDir Path folder;

  private static PictureText noFonts() {
    return PictureText.with(
        () -> {
          throw new InternalError("Fontconfig head is null");
        });
  }

  private static int pixel(BufferedImage image, int x, int y) {
    return image.getRGB(x, y) & 0xFFFFFF;
  }

  @Test
  void cellsHaveThePaletteColourOfTheirWeight() throws IOException {
    Generation run = Runs.random(new int[] {1, 3}, new int[] {0, 2, 5}, 5, false, Runs.labels(5));
    Path file = folder.resolve("run.png");
    AttentionFormat.PNG.write(run, file);
    BufferedImage image = ImageIO.read(file.toFile());
    assertCells(run, image, PictureText.sansSerif(), ColourScale.SQUARE_ROOT);
  }

  @Test
  void linearColourOnRequest() {
    Generation run = Runs.random(new int[] {1}, new int[] {0, 1}, 7, false, Runs.labels(7));
    BufferedImage image = HeatMapPicture.draw(MappedRun.of(run), ColourScale.LINEAR, noFonts());
    assertCells(run, image, noFonts(), ColourScale.LINEAR);
  }

  /** Checks the middle of every cell; the layout is taken from the image's own size. */
  private static void assertCells(
      Generation run, BufferedImage image, PictureText text, ColourScale scale) {
    AttentionMaps maps = run.attention();
    int widest = 0;
    for (int i = 0; i < maps.tokens(); i++) {
      widest = Math.max(widest, text.width(run.tokens().get(i).label() + " " + i));
    }
    PictureLayout layout =
        PictureLayout.of(
            maps.layers().length,
            maps.heads().length,
            maps.tokens(),
            text.available() ? Math.min(110, widest) + 6 : 0);
    assertEquals(layout.width(), image.getWidth());
    assertEquals(layout.height(), image.getHeight());
    int half = layout.cell() / 2;
    for (int l = 0; l < maps.layers().length; l++) {
      for (int h = 0; h < maps.heads().length; h++) {
        for (int query = 0; query < maps.tokens(); query++) {
          float[] row = maps.row(maps.layers()[l], maps.heads()[h], query);
          for (int key = 0; key < maps.tokens(); key++) {
            int colour =
                pixel(
                    image,
                    layout.panelX(h) + key * layout.cell() + half,
                    layout.panelY(l) + query * layout.cell() + half);
            if (key > query) {
              assertEquals(MASK, colour);
            } else {
              double position = scale == ColourScale.LINEAR ? row[key] : Math.sqrt(row[key]);
              assertNear(Palette.SEQUENTIAL_LIGHT.rgb(position), colour);
            }
          }
        }
      }
    }
  }

  /** Colours come from a table of 1,024: one step off in a channel is rounding. */
  private static void assertNear(int expected, int found) {
    for (int shift = 0; shift <= 16; shift += 8) {
      assertEquals(expected >> shift & 255, found >> shift & 255, 1, "channel at bit " + shift);
    }
  }

  @Test
  void aPooledCellShowsItsLargestWeight() {
    int t = 500;
    AttentionMaps maps = AttentionMaps.allocate(new int[] {0}, new int[] {0, 1}, t);
    float[] row = new float[t];
    row[101] = 1;
    maps.put(0, 0, 401, row);
    Generation run = Runs.run(Runs.tokens(t, Runs.labels(t)), t, maps, Optional.empty());
    BufferedImage image =
        HeatMapPicture.draw(MappedRun.of(run), ColourScale.SQUARE_ROOT, noFonts());
    PictureLayout layout = PictureLayout.of(1, 2, t, 0);
    assertEquals(2, layout.pool());
    int dark = Palette.SEQUENTIAL_LIGHT.rgb(1);
    assertEquals(dark, pixel(image, layout.panelX(0) + 50, layout.panelY(0) + 200));
    assertEquals(
        Palette.SEQUENTIAL_LIGHT.rgb(0),
        pixel(image, layout.panelX(0) + 51, layout.panelY(0) + 200));
  }

  @Test
  void withoutFontsThePictureHasNoLabelsButIsDrawn() {
    Generation run = Runs.random(new int[] {0}, new int[] {0}, 3, false, Runs.labels(6));
    PictureText text = noFonts();
    assertFalse(text.available());
    assertCells(
        run,
        HeatMapPicture.draw(MappedRun.of(run), ColourScale.SQUARE_ROOT, text),
        text,
        ColourScale.SQUARE_ROOT);
  }

  @ParameterizedTest
  @CsvSource({
    "1, 1, 1",
    "1, 1, 200",
    "1, 1, 1024",
    "1, 1, 20000",
    "6, 3, 6",
    "6, 3, 33",
    "12, 12, 1024",
    "48, 25, 1024",
    "1, 25, 64",
    "24, 1, 64",
    "96, 96, 31"
  })
  void picturesStayBoundedAndPanelsApart(int layers, int heads, int tokens) {
    for (int labelSpace : new int[] {0, 40, 116}) {
      PictureLayout layout = PictureLayout.of(layers, heads, tokens, labelSpace);
      assertTrue(layout.width() <= PictureLayout.MAX_SIDE, layout.toString());
      assertTrue(layout.height() <= PictureLayout.MAX_SIDE, layout.toString());
      assertTrue(layout.cell() >= 1, layout.toString());
      assertTrue((long) layout.cells() * layout.pool() >= tokens, layout.toString());
      int step = layout.panelX(1) - layout.panelX(0);
      assertTrue(heads == 1 || step >= layout.side() + layout.labelSpace(), layout.toString());
      assertTrue(layout.panelX(heads - 1) + layout.side() <= layout.width(), layout.toString());
    }
  }

  @Test
  void tooManyPanelsAreRefused() {
    String message =
        String.valueOf(
            assertThrows(IllegalArgumentException.class, () -> PictureLayout.of(500, 2, 5, 0))
                .getMessage());
    assertTrue(message.contains("500 x 2") && message.contains("fewer layers or heads"), message);
  }

  @Test
  void thePaletteRunsThroughItsStops() {
    assertEquals(0xf8fafe, Palette.SEQUENTIAL_LIGHT.rgb(0));
    assertEquals(0x6389e2, Palette.SEQUENTIAL_LIGHT.rgb(0.5));
    assertEquals(0x0c246d, Palette.SEQUENTIAL_LIGHT.rgb(1));
    assertEquals(0xf7f5f3, Palette.DIVERGING_LIGHT.rgb(0.5));
  }

  @Test
  void weightsOutsideTheRangeGoToItsEnds() {
    assertEquals(0, ColourScale.SQUARE_ROOT.position(Double.NaN));
    assertEquals(0, ColourScale.LINEAR.position(-0.5));
    assertEquals(1, ColourScale.SQUARE_ROOT.position(7));
    assertEquals(0.5, ColourScale.SQUARE_ROOT.position(0.25));
  }
}
