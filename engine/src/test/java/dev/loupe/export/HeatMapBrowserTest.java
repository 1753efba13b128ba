package dev.loupe.export;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Browser;
import dev.loupe.export.page.PageModules;
import dev.loupe.export.page.Palette;
import dev.loupe.generate.Generation;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.AutoClose;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.openqa.selenium.Keys;

/** The page of maps in Chromium, and how its script is put together. */
@Timeout(200)
class HeatMapBrowserTest {
  private static final Generation RUN =
      Runs.random(new int[] {1, 3}, new int[] {0, 5}, 3, true, "·the", "·king", "a", "b", "c");

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

  private static void open(int width, String theme, String fragment) throws Exception {
    Path file = dir.resolve("maps.html");
    AttentionFormat.HTML.write(RUN, file);
    browser.size(width, 900).theme(theme);
    browser.driver().get("about:blank");
    browser.driver().get(file.toUri() + fragment);
    browser.await("the map is drawn", () -> !browser.text("#readout").isEmpty());
  }

  private static Object script(String script) {
    return Objects.requireNonNull(browser.driver().executeScript(script), script);
  }

  @ParameterizedTest
  @ValueSource(strings = {"light", "dark"})
  void aCellHasTheColourOfItsWeight(String theme) throws Exception {
    open(1280, theme, "#layer=3&head=5&query=4&key=2");
    Object drawn =
        script(
            """
            const canvas = document.getElementById('cells'), found = new Set();
            const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            for (let i = 0; i < data.length; i += 4) found.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
            return [...found].map(colour => '#' + colour.toString(16).padStart(6, '0')).join(' ');
            """);
    Palette palette = theme.equals("dark") ? Palette.SEQUENTIAL_DARK : Palette.SEQUENTIAL_LIGHT;
    int[] colours = palette.table(1024);
    for (int query = 0; query < 5; query++) {
      float[] row = RUN.attention().row(3, 5, query);
      for (int key = 0; key <= query; key++) {
        int rgb = colours[(int) Math.round(1023 * Math.sqrt(row[key]))];
        String colour = "#%06x".formatted(rgb);
        assertTrue(drawn.toString().contains(colour), query + " reads " + key + ": " + colour);
        if (query == 4) {
          assertEquals(
              "rgb(%d, %d, %d)".formatted(rgb >> 16, rgb >> 8 & 255, rgb & 255),
              browser
                  .all(".token")
                  .get(key)
                  .getCssValue("background-color")
                  .replace("rgba", "rgb")
                  .replace(", 1)", ")"));
        }
      }
    }
  }

  @Test
  void theSelectionIsSaidAndMovesWithTheKeys() throws Exception {
    open(1280, "light", "#layer=3&head=5&query=4&key=2");
    float[] row = RUN.attention().row(3, 5, 4);
    String said = browser.text("#sentence");
    assertTrue(
        said.equals(String.format(Locale.ROOT, "c 4, head 3.5, reads a 2: %.3f.", row[2]))
            || said.equals(
                String.format(Locale.ROOT, "c 4, head 3.5, looks most at a 2: %.2f.", row[2])),
        said);
    assertEquals(
        "c 4 reads a 2: " + row[2], browser.text("#readout").replaceFirst(", score.*", ""));
    browser.find("#map").click(); // whatever it selects: the keys go on from there
    browser.keys(Keys.ARROW_UP);
    browser.await(
        "a query above", () -> !browser.text("#sentence").startsWith("c 4, head 3.5, reads a 2"));
    browser.shifted(Keys.ARROW_LEFT);
    browser.await("head 3.0", () -> browser.text("#head-name").equals("Head 3.0"));
    browser.click("Ignore first token");
    assertEquals("true", browser.find("#first").getDomAttribute("aria-pressed"));
    browser.find("#kind").click();
    browser.await("scores", () -> browser.text("#legend-text").contains("before the softmax"));
  }

  @Test
  void linesGoFromTheSelectedQueryToWhatItReads() throws Exception {
    Path file = dir.resolve("lines.html");
    AttentionFormat.HTML.write(Runs.previousToken(65), file);
    browser.size(1280, 900).theme("light");
    browser.driver().get("about:blank");
    browser.driver().get(file.toUri() + "#layer=2&head=3&query=40");
    browser.await("the head's role", () -> browser.text("#head-name").contains("2.3, previous"));
    browser.click("Lines");
    browser.await("lines", () -> browser.text("#lines-text").contains("Not drawn: 0.00"));
    assertTrue(browser.text("#sentence").contains("looks most at"), browser.text("#sentence"));
    assertTrue(script("return location.hash").toString().endsWith("&view=lines"));
    String accent =
        """
        const canvas = document.getElementById('threads'), g = canvas.getContext('2d');
        const d = devicePixelRatio, top = document.getElementById('lines').scrollTop;
        const middle = Math.round(canvas.width / 2);
        const y = Math.round((40 * 22 - top) * d); // halfway from row 40 to key 39
        const at = y => [...g.getImageData(middle, y, 1, 1).data].join(' ');
        return [at(y), at(y - 44 * d)].join(',');
        """;
    String[] colours = script(accent).toString().split(",", -1);
    assertTrue(!colours[0].endsWith(" 0"), "a line from 40 to 39: " + colours[0]);
    assertTrue(!colours[0].equals(colours[1]), "the selected line looks otherwise: " + colours[0]);
    browser.keys(Keys.ARROW_UP);
    browser.await(
        "a new selection", () -> script("return location.hash").toString().contains("39"));
    browser.await("another colour", () -> !script(accent).toString().startsWith(colours[0] + ","));
    browser.click("Map");
    browser.await("the map", () -> browser.text("#legend-text").startsWith("Colour"));
  }

  @ParameterizedTest
  @CsvSource({"400, ''", "1280, ''", "1920, ''", "400, #view=lines", "1920, #view=lines"})
  void nothingSticksOut(int width, String fragment) throws Exception {
    open(width, "light", fragment);
    assertEquals(
        0L,
        script(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"),
        "CSS pixels");
  }

  @Test
  void whatNoModuleExportsIsRefused() {
    assertTrue(message("import { css } from './nowhere.js';\n").contains("nowhere.js"));
    assertTrue(message("import { css, tint } from './colour.js';\n").contains("css, tint"));
  }

  private static String message(String script) {
    return String.valueOf(
        assertThrows(IllegalStateException.class, () -> PageModules.inline(script)).getMessage());
  }
}
