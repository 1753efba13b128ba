package dev.loupe.bench.kernel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.awt.image.BufferedImage;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import javax.imageio.ImageIO;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * The page as Chromium draws it. It forbids scripts, so it is measured from outside: by a page that
 * has it in a frame.
 */
class ReportBrowserTest {
  /** What sticks out of its window or drawing, and which texts of a drawing lie on one another. */
  private static final String MEASURE =
      """
      const page = document.querySelector('iframe').contentDocument;
      const bad = [];
      const text = e => e.textContent.trim();
      const over = (a, b) =>
          Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
          Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
      let figures = 0, texts = 0;
      const wide = page.documentElement.scrollWidth;
      if (wide > WIDTH) bad.push('the page is ' + wide + ' pixels wide');
      for (const svg of page.querySelectorAll('svg')) {
        const frame = svg.getBoundingClientRect();
        if (frame.width === 0) continue; // that of other windows
        figures++;
        if (frame.right > WIDTH) bad.push('a drawing ends at ' + frame.right);
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
      const style = page.defaultView.getComputedStyle(page.body);
      const found = {bad, figures, texts, ground: style.backgroundColor, ink: style.color};
      document.body.textContent = '{{' + encodeURIComponent(JSON.stringify(found)) + '}}';
      """;

  @TempDir Path dir;
  private String chromium = "";

  @BeforeEach
  void needsChromium() throws Exception {
    chromium =
        Stream.of("chromium", "chromium-browser", "google-chrome")
            .flatMap(
                name ->
                    Stream.of(System.getenv().getOrDefault("PATH", "").split(File.pathSeparator))
                        .map(folder -> Path.of(folder, name)))
            .filter(Files::isExecutable)
            .findFirst()
            .map(Path::toString)
            .orElse("");
    assumeTrue(!chromium.isEmpty(), "no chromium, chromium-browser or google-chrome on the PATH");
    boolean draws;
    try {
      draws = run("--dump-dom", "about:blank").contains("<body>");
    } catch (AssertionError | IOException e) {
      draws = false; // a stub that tells how to install it, or no sandbox of its own
    }
    assumeTrue(draws, chromium + " does not start here");
  }

  private String run(String... options) throws IOException, InterruptedException {
    List<String> command = new ArrayList<>(List.of(chromium, "--headless=new", "--no-sandbox"));
    command.addAll(List.of("--disable-gpu", "--disable-background-networking", "--no-first-run"));
    command.add("--user-data-dir=" + dir.resolve("profile"));
    command.addAll(List.of(options));
    Path out = dir.resolve("out");
    Path errors = dir.resolve("errors");
    Process process =
        new ProcessBuilder(command)
            .redirectOutput(out.toFile())
            .redirectError(errors.toFile())
            .start();
    if (!process.waitFor(90, TimeUnit.SECONDS)) {
      process.descendants().forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
      throw new IOException("Chromium took more than 90 s: " + Files.readString(errors));
    }
    assertEquals(0, process.exitValue(), () -> "see " + errors);
    return Files.readString(out);
  }

  /** What {@link #MEASURE} finds in a window so many pixels wide. */
  private JsonObject measure(String page, int width, String... options) throws Exception {
    Path file = dir.resolve("frame.html");
    Files.writeString(
        file,
        """
        <!doctype html><meta charset="utf-8"><style>:root { color-scheme: light dark; }</style>
        <body onload="measure()"><iframe style="width: %dpx; height: 800px; border: 0" srcdoc="%s"></iframe>
        <script>function measure() { const WIDTH = %d; %s }</script>
        """
            .formatted(width, page.replace("&", "&amp;").replace("\"", "&quot;"), width, MEASURE));
    List<String> all = new ArrayList<>(List.of(options));
    all.addAll(List.of("--dump-dom", "--window-size=1200,900", file.toUri().toString()));
    String dom = run(all.toArray(String[]::new));
    Matcher found = Pattern.compile("\\{\\{(\\S+)}}").matcher(dom);
    assertTrue(found.find(), dom);
    String json =
        java.net.URLDecoder.decode(
            found.group(1).replace("+", "%2B"), java.nio.charset.StandardCharsets.UTF_8);
    return JsonParser.parseString(json).getAsJsonObject();
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

  @ParameterizedTest
  @ValueSource(ints = {1000, 720, 400})
  void nothingSticksOutOrLiesOnSomethingElse(int width) throws Exception {
    int[] figures = {4 + 1 + 1, 4 + 2 + 2, 0, 1 + 1, 20 + 2 + 1}; // ladders, speeds, rooflines
    for (int i = 0; i < figures.length; i++) {
      assertFits(measure(reports().get(i).html(), width), figures[i]);
    }
  }

  /** A4 with margins of 14 mm is 688 pixels wide. */
  @Test
  void onPaperToo() throws Exception {
    for (KernelReport report : reports()) {
      String paper =
          report
              .html()
              .replaceFirst("<meta http-equiv[^>]+>", "") // as its style is another now
              .replace("@media print", "@media all")
              .replace("@media screen", "@media not all");
      JsonObject found = measure(paper, 688, "--force-dark-mode");
      assertEquals("[]", found.get("bad").toString());
      assertEquals("rgb(255, 255, 255)", found.get("ground").getAsString());
      assertEquals("rgb(0, 0, 0)", found.get("ink").getAsString());
    }
  }

  @Test
  void isDarkWhereTheReaderIs() throws Exception {
    String page = reports().getFirst().html();
    JsonObject light = measure(page, 1000);
    assertEquals("rgb(255, 255, 255)", light.get("ground").getAsString());
    assertEquals("rgb(27, 31, 38)", light.get("ink").getAsString());
    JsonObject dark = measure(page, 1000, "--force-dark-mode");
    assertEquals("rgb(20, 23, 28)", dark.get("ground").getAsString());
    assertEquals("rgb(230, 232, 236)", dark.get("ink").getAsString());
    BufferedImage day = picture(page);
    BufferedImage night = picture(page, "--force-dark-mode");
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

  private BufferedImage picture(String page, String... options) throws Exception {
    Path file = dir.resolve("page.html");
    Files.writeString(file, page);
    Path png = dir.resolve("page.png");
    List<String> all = new ArrayList<>(List.of(options));
    all.addAll(List.of("--screenshot=" + png, "--window-size=1000,1400", "--hide-scrollbars"));
    all.add(file.toUri().toString());
    run(all.toArray(String[]::new));
    return ImageIO.read(png.toFile());
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
