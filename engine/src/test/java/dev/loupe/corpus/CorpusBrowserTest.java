package dev.loupe.corpus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.deque.html.axecore.selenium.AxeBuilder;
import dev.loupe.Browser;
import dev.loupe.attention.HeadScore;
import dev.loupe.corpus.CorpusReport.Head;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.Objects;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.AutoClose;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.openqa.selenium.By;
import org.openqa.selenium.Keys;
import org.openqa.selenium.WebElement;
import org.openqa.selenium.interactions.Actions;

/** The page in Chromium, as somebody uses it. */
@Timeout(200)
class CorpusBrowserTest {
  private static final CorpusReport REPORT = Reports.of(4, 5, HeadScore.values());

  @TempDir static Path dir;
  @AutoClose private static Browser browser;

  @BeforeAll
  static void start() {
    browser = Browser.open(dir);
  }

  @BeforeEach
  void open() throws Exception {
    browser.size(1280, 900).theme("light");
    open(REPORT, "");
  }

  @AfterEach
  void theConsoleIsSilent() {
    assertEquals(List.of(), browser.complaints());
  }

  private static void open(CorpusReport report, String fragment) throws Exception {
    Path file = dir.resolve("page.html");
    Files.writeString(file, report.html());
    browser.driver().get("about:blank");
    browser.driver().get(file.toUri() + fragment);
  }

  private static String text(String selector) {
    return find(selector).getText();
  }

  private static WebElement find(String selector) {
    return browser.driver().findElement(By.cssSelector(selector));
  }

  private static List<String> texts(String selector) {
    return browser.driver().findElements(By.cssSelector(selector)).stream()
        .map(WebElement::getText)
        .toList();
  }

  private static Object script(String script) {
    return Objects.requireNonNull(browser.driver().executeScript(script), script);
  }

  /** Names of heads, those with the highest mean first. */
  private static List<String> sorted(HeadScore score) {
    return REPORT.heads().stream()
        .sorted(Comparator.comparingDouble(head -> -mean(head, score)))
        .map(head -> head.layer() + "." + head.head())
        .toList();
  }

  private static double mean(Head head, HeadScore score) {
    return Objects.requireNonNull(head.scores().get(score)).distribution().mean();
  }

  private static void choose(HeadScore score) {
    find("#score option[value=" + score.key() + "]").click();
  }

  @Test
  void itOpensWithTheHighestHeadOfTheFirstScore() {
    List<String> order = sorted(HeadScore.ENTROPY);
    assertEquals("Head " + order.getFirst(), text("#head-name"));
    assertEquals(order, texts("#table tbody th"));
    assertEquals(order.getFirst(), text("#table tr.chosen th"));
    assertEquals(20, texts("#grid td").size());
    assertEquals(10, texts("#scores tbody tr").size());
    assertEquals(1L, script("return document.querySelectorAll('#grid [tabindex=\"0\"]').length"));
  }

  @Test
  void aScoreIsChosen() {
    for (HeadScore score : HeadScore.values()) {
      choose(score);
      assertEquals(sorted(score), texts("#table tbody th"), score.key());
    }
    choose(HeadScore.INDUCTION);
    assertEquals("Induction: 20 heads", text("#table-name"));
    assertEquals("Induction", text("#scores tr.chosen th"));
    assertTrue(text("#outliers").startsWith("Highest: Induction"));
    Head first = REPORT.heads().getFirst();
    assertEquals(
        "%.3f".formatted(mean(first, HeadScore.INDUCTION)),
        find("#grid td").getDomProperty("textContent"));
    find("#scores tbody tr:nth-child(1) button").click();
    assertEquals("Entropy, nats: 20 heads", text("#table-name"));
    assertTrue(String.valueOf(script("return location.hash")).startsWith("#score=entropy&layer="));
  }

  /** The darkest cell of a light page is the highest, the others in order. */
  @Test
  void coloursGoByTheMean() {
    choose(HeadScore.SELF);
    String light =
        """
        const light = e => { const [r, g, b] = getComputedStyle(e).backgroundColor.match(/[0-9]+/g).map(Number); return %s * (r + g + b); };
        return [...document.querySelectorAll('#grid td')].sort((a, b) => light(a) - light(b)).map(e => e.dataset.layer + '.' + e.dataset.head);
        """;
    assertEquals(
        sorted(HeadScore.SELF).subList(0, 5),
        ((List<?>) script(light.formatted("1"))).subList(0, 5));
    browser.theme("dark");
    assertEquals(
        sorted(HeadScore.SELF).subList(0, 5),
        ((List<?>) script(light.formatted("-1"))).subList(0, 5));
  }

  @Test
  void theTableIsSorted() {
    List<String> up = sorted(HeadScore.ENTROPY).reversed();
    find("#table th:nth-child(2) button").click();
    assertEquals(up, texts("#table tbody th"));
    assertEquals("ascending", find("#table th:nth-child(2)").getDomAttribute("aria-sort"));
    find("#table th:nth-child(1) button").click();
    assertEquals(
        REPORT.heads().stream().map(h -> h.layer() + "." + h.head()).toList(),
        texts("#table tbody th"));
    find("#table th:nth-child(6) button").click();
    List<Double> p95 =
        texts("#table tbody td:nth-child(6)").stream()
            .map(cell -> Double.valueOf(cell.replace("<", "")))
            .toList();
    assertEquals(p95.stream().sorted(Comparator.reverseOrder()).toList(), p95);
    choose(HeadScore.SELF);
    assertEquals("descending", find("#table th:nth-child(6)").getDomAttribute("aria-sort"), "kept");
  }

  @Test
  void aHeadIsChosenByClickAndByKey() {
    find("#grid tbody tr:nth-child(2) td:nth-of-type(3)").click();
    assertEquals("Head 1.2", text("#head-name"));
    assertEquals("1.2", text("#table tr.chosen th"));
    keys(Keys.ARROW_RIGHT, Keys.ARROW_DOWN);
    assertEquals("Head 2.3", text("#head-name"));
    keys(Keys.ARROW_LEFT, Keys.ARROW_UP, Keys.ARROW_UP, Keys.ARROW_UP);
    assertEquals("Head 0.2", text("#head-name"), "the edge holds");
    assertEquals(1, texts("#grid [aria-selected=true]").size());
    List<String> order = sorted(HeadScore.ENTROPY);
    find("#table tbody tr:nth-child(4) button").click();
    assertEquals("Head " + order.get(3), text("#head-name"));
    keys(Keys.ARROW_DOWN);
    assertEquals("Head " + order.get(4), text("#head-name"));
    CorpusReport.Window highest =
        Objects.requireNonNull(
                REPORT.heads().stream()
                    .filter(h -> order.get(4).equals(h.layer() + "." + h.head()))
                    .findFirst()
                    .orElseThrow()
                    .scores()
                    .get(HeadScore.ENTROPY))
            .highest()
            .getFirst();
    String line = text("#outliers tbody tr");
    assertTrue(line.contains(" window " + highest.window() + " " + highest.tokens() + " "), line);
  }

  private static void keys(CharSequence... keys) {
    new Actions(browser.driver()).sendKeys(keys).perform();
  }

  @Test
  void theAddressSaysWhatIsShown() throws Exception {
    open(REPORT, "#score=self&layer=3&head=4");
    assertEquals("Head 3.4", text("#head-name"));
    assertEquals("Self: 20 heads", text("#table-name"));
    open(REPORT, "#score=constructor&layer=9&head=x");
    assertEquals("Entropy, nats: 20 heads", text("#table-name"));
  }

  @Test
  void namesAreText() throws Exception {
    CorpusSummary corpus = new CorpusSummary();
    corpus.add(Reports.HOSTILE, 1, 0, 9, 8, -9);
    ScoreSummary self = new ScoreSummary();
    self.add(new CorpusReport.Window(Reports.HOSTILE, 0, 9, 0.5));
    open(
        new CorpusReport(
            java.util.Map.of(Reports.HOSTILE, Reports.HOSTILE),
            corpus.corpus(),
            List.of(),
            List.of(new Head(0, 0, java.util.Map.of(HeadScore.SELF, self.score())))),
        "");
    for (String where : List.of("#outliers bdi", "#documents bdi", "dt", "dd")) {
      String shown = String.valueOf(find(where).getDomProperty("textContent"));
      assertTrue(
          shown.startsWith("</script><script>alert(1)</script><!-- U+202Etxt.exe U+001B[31m"),
          shown);
      assertTrue(shown.endsWith("& \"x\" {{data}} %s"), shown);
    }
  }

  @Test
  void nothingIsFetched() throws Exception {
    List<String> _ = browser.requests();
    open(REPORT, "");
    assertEquals(
        List.of(),
        browser.requests().stream()
            .filter(
                r -> !r.startsWith("file:") && !r.startsWith("data:") && !r.startsWith("about:"))
            .toList());
  }

  @Tag("sweep")
  @Test
  void narrowWindowsAndAllThemesAreReadable() throws Exception {
    for (CorpusReport report : List.of(REPORT, Reports.of(48, 25, HeadScore.values()))) {
      open(report, "");
      for (int width : new int[] {1280, 720, 400, 320}) {
        browser.size(width, 800);
        assertEquals(
            true,
            script("return document.documentElement.scrollWidth <= innerWidth"),
            "at " + width);
        assertEquals(
            List.of(),
            script(
                """
                return [...document.querySelectorAll('#grid, #ramp, #scores, #table, .list, #outliers bdi')].filter(e => {
                  const box = e.getBoundingClientRect(), out = e.closest('.table')?.getBoundingClientRect();
                  return box.right > document.documentElement.clientWidth + 0.5 || out && box.right > out.right + 0.5;
                }).map(e => e.id || e.className || e.textContent)
                """),
            "at " + width);
      }
    }
    open();
    for (String theme : List.of("light", "dark")) {
      browser.theme(theme);
      assertEquals(
          List.of(),
          new AxeBuilder()
              .analyze(browser.driver()).getViolations().stream()
                  .map(rule -> rule.getId() + " " + rule.getNodes().getFirst().getHtml())
                  .toList(),
          theme);
    }
  }

  /** 1,200 heads with ten scores: no slower for a head than 75, as this machine is just now. */
  @Tag("sweep")
  @Test
  void aLargeModelIsQuick() throws Exception {
    CorpusReport large = Reports.of(48, 25, HeadScore.values());
    assertTrue(large.html().length() < 4_000_000, "bytes " + large.html().length());
    CorpusReport small = Reports.of(3, 25, HeadScore.values());
    double before = millisecondsOfAllScores(small);
    double milliseconds = millisecondsOfAllScores(large);
    double expected = 16 * Math.max(before, millisecondsOfAllScores(small));
    assertTrue(
        milliseconds < 4 * expected, "ms: %s, expected %s".formatted(milliseconds, expected));
  }

  private double millisecondsOfAllScores(CorpusReport report) throws Exception {
    open(report, "");
    return ((Number)
            script(
                """
                const start = performance.now(), select = document.getElementById('score');
                for (const option of select.options) {
                  select.value = option.value;
                  select.dispatchEvent(new Event('change'));
                  document.body.offsetHeight;
                }
                return performance.now() - start;
                """))
        .doubleValue();
  }
}
