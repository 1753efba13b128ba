package dev.loupe.bench.kernel.report;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.Browser;
import java.awt.image.BufferedImage;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import javax.imageio.ImageIO;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.AutoClose;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The page as Chromium draws it. */
class ReportBrowserTest {
  /** What sticks out of its window or drawing, and which texts of a drawing lie on one another. */
  private static final String MEASURE =
      """
      const width = arguments[0], bad = [];
      const text = e => e.textContent.trim();
      const over = (a, b) =>
          Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
          Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
      let figures = 0, texts = 0;
      const wide = document.documentElement.scrollWidth;
      if (wide > width) bad.push('the page is ' + wide + ' pixels wide');
      for (const svg of document.querySelectorAll('svg')) {
        const frame = svg.getBoundingClientRect();
        if (frame.width === 0) continue; // that of other windows
        figures++;
        if (frame.right > width) bad.push('a drawing ends at ' + frame.right);
        const upright = [];
        for (const each of svg.querySelectorAll('text')) {
          texts++;
          const box = each.getBoundingClientRect();
          if (box.left < frame.left - 1 || box.right > frame.right + 1 ||
              box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
            bad.push('sticks out: ' + text(each));
          if (each.hasAttribute('transform') && !each.getAttribute('transform').includes('rotate(0)'))
            continue;
          for (const other of upright)
            if (over(box, other.getBoundingClientRect()))
              bad.push('on one another: ' + text(other) + ' / ' + text(each));
          upright.push(each);
        }
      }
      const style = getComputedStyle(document.body);
      return JSON.stringify({bad, figures, texts, ground: style.backgroundColor, ink: style.color});
      """;

  @TempDir static Path dir;
  @AutoClose private static Browser browser;

  @BeforeAll
  static void start() {
    browser = Browser.open(dir);
  }

  @AfterEach
  void theConsoleIsSilent() {
    assertEquals(List.of(), browser.complaints());
  }

  /** What {@link #MEASURE} finds in a window so many pixels wide. */
  private static JsonObject measure(KernelReport report, int width) throws IOException {
    // an address of its own: a browser may say that one which it has already is loaded
    Path file = Files.createTempFile(dir, "page", ".html");
    Files.writeString(file, report.html());
    browser.size(width, 900).driver().get(file.toUri().toString());
    Object found = browser.driver().executeScript(MEASURE, width);
    return JsonParser.parseString(String.valueOf(found)).getAsJsonObject();
  }

  private static List<KernelReport> reports() {
    return List.of(
        KernelReports.cpu(1, 1).against(KernelReports.cpu(100, 0.9)),
        KernelReports.cuda(false),
        KernelReports.cuda(true),
        KernelReports.hostile(),
        KernelReports.crowded());
  }

  private static void assertFits(JsonObject found, int figures) {
    assertEquals("[]", found.get("bad").toString());
    assertEquals(figures, found.get("figures").getAsInt());
    assertTrue(found.get("texts").getAsInt() >= 7 * figures, found::toString);
  }

  @Tag("sweep")
  @ParameterizedTest
  @ValueSource(ints = {1000, 720, 400})
  void nothingSticksOutOrLiesOnSomethingElse(int width) throws IOException {
    browser.theme("light");
    int[] figures = {4 + 1 + 1, 4 + 2 + 2, 0, 1 + 1, 20 + 2 + 1}; // ladders, speeds, rooflines
    for (int i = 0; i < figures.length; i++) {
      assertFits(measure(reports().get(i), width), figures[i]);
    }
  }

  /** A4 with margins of 14 mm is 688 pixels wide. */
  @Test
  void onPaperToo() throws IOException {
    browser.paper("dark");
    for (KernelReport report : reports()) {
      JsonObject found = measure(report, 688);
      assertEquals("[]", found.get("bad").toString());
      assertEquals("rgb(255, 255, 255)", found.get("ground").getAsString());
      assertEquals("rgb(0, 0, 0)", found.get("ink").getAsString());
    }
  }

  @Test
  void isDarkWhereTheReaderIs() throws IOException {
    KernelReport report = reports().getFirst();
    browser.theme("light");
    JsonObject light = measure(report, 1000);
    assertEquals("rgb(255, 255, 255)", light.get("ground").getAsString());
    assertEquals("rgb(27, 31, 38)", light.get("ink").getAsString());
    BufferedImage day = picture();
    browser.theme("dark");
    JsonObject dark = measure(report, 1000);
    assertEquals("rgb(20, 23, 28)", dark.get("ground").getAsString());
    assertEquals("rgb(230, 232, 236)", dark.get("ink").getAsString());
    BufferedImage night = picture();
    assertNotEquals(day.getRGB(2, 2), night.getRGB(2, 2));
    for (BufferedImage image : List.of(day, night)) {
      assertEquals(1000, image.getWidth());
      assertTrue(shareOf(image, image.getRGB(2, 2)) > 0.5, "the ground");
      assertTrue(shareOf(image, image.getRGB(2, 2)) < 0.95, "is not all there is");
    }
    int bar = 0xFF7390DD; // --bar in light
    assertTrue(shareOf(day, bar) > 0.01, "bars");
    assertFalse(shareOf(night, bar) > 0, "other bars");
  }

  private static BufferedImage picture() throws IOException {
    return ImageIO.read(new ByteArrayInputStream(browser.size(1000, 1400).screenshot()));
  }

  private static double shareOf(BufferedImage image, int colour) {
    long count = 0;
    for (int y = 0; y < image.getHeight(); y++) {
      for (int x = 0; x < image.getWidth(); x++) {
        count += image.getRGB(x, y) == colour ? 1 : 0;
      }
    }
    return count / (double) image.getWidth() / image.getHeight();
  }
}
