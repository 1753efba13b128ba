package dev.loupe.serve;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import com.deque.html.axecore.results.Results;
import com.deque.html.axecore.results.Rule;
import com.deque.html.axecore.selenium.AxeBuilder;
import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.stream.Collectors;
import javax.imageio.ImageIO;
import javax.xml.parsers.DocumentBuilderFactory;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.openqa.selenium.Keys;
import org.openqa.selenium.WebElement;
import org.openqa.selenium.interactions.Actions;

/**
 * The workbench in a browser, as everybody uses it: links, files, keys, sizes, servers that are
 * gone.
 */
class PageUseTest extends PageInBrowser {
  @Test
  void aLinkShowsTheSame() throws Exception {
    write("To be or not to be, to be or not", 10, 1);
    browser.script("m.update({layer: 5, head: 2, query: 11, key: 4})");
    browser.settled();
    browser.until("the address", "location.hash.includes('q=11') && location.hash.includes('k=4')");
    String fragment = browser.words("location.hash");
    int[][] before = canvas();
    try (Served other = Served.start(Served.options())) {
      browser.go(other.server().address() + "/" + fragment);
      assertEquals(11, browser.number("s.query"));
      assertEquals(4, browser.number("s.key"));
      assertEquals("Head 5.2", browser.text("#head-name"));
      browser.await("the same pixels", () -> Arrays.deepEquals(before, canvas()));
      browser.go(
          other.server().address() + "/" + fragment.replaceFirst("m=[^&]*", "m=0123456789ab"));
      browser.await("the message", () -> browser.text("#message").contains("another model"));
      assertEquals(List.of(), browser.complaints());
      browser.driver().get("about:blank");
    }
  }

  @Test
  void theMapShowsValueWeightedAndRolloutToo() throws Exception {
    write("To be or not to be, to be or not", 10, 1);
    browser.script("m.update({layer: 5, head: 2, query: 11, key: 4})");
    browser.settled();
    int[][] weights = canvas();
    browser.click("Value-weighted");
    browser.await("other pixels", () -> !Arrays.deepEquals(weights, canvas()));
    browser.await("the unit", () -> browser.text(".map-foot").contains("|weight × value × W_O|"));
    browser.await("a number", () -> browser.text(".readout").contains("norms of values, "));
    browser.click("Rollout");
    browser.until("the address", "location.hash.includes('o=rollout')");
    browser.await("the unit", () -> browser.text(".map-foot").contains("attention rollout up to"));
    browser.settled();
    int[][] rollout = canvas();
    browser.script("m.update({head: 1})");
    browser.settled();
    assertTrue(Arrays.deepEquals(rollout, canvas()), "one map for all heads of a layer");
    String link = browser.words("location.href");
    browser.driver().get("about:blank");
    browser.go(link);
    browser.await("the link's map", () -> Arrays.deepEquals(rollout, canvas()));
    browser.click("Weights");
    browser.until("the address", "!location.hash.includes('o=')");
    assertEquals(List.of(), browser.complaints());
  }

  private static int[][] canvas() {
    List<Number> numbers =
        browser.numbers(
            """
                const c = document.querySelector('#map canvas');
                const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
                let hash = 0;
                for (const v of d) hash = hash * 31 + v | 0;
                return [c.width, c.height, hash];
                """);
    return new int[][] {numbers.stream().mapToInt(Number::intValue).toArray()};
  }

  @Test
  void figuresAndNumbersCanBeTakenAway() throws Exception {
    write("To be <script>alert(1)</script> & \"be\"", 5, 1);
    browser.script("m.update({layer: 5, head: 1})");
    browser.settled();
    browser.click("Export");
    browser.click("SVG");
    Path svg = download(".svg");
    assertEquals("loupe-shakespeare-5.1.svg", svg.getFileName().toString());
    browser.await("written", () -> svg.toFile().length() > 1000);
    var document = DocumentBuilderFactory.newInstance().newDocumentBuilder().parse(svg.toFile());
    assertEquals("svg", document.getDocumentElement().getTagName());
    assertEquals(0, document.getElementsByTagName("script").getLength());
    assertTrue(document.getElementsByTagName("text").getLength() > 10);
    assertEquals(1, document.getElementsByTagName("image").getLength());
    String words = document.getDocumentElement().getTextContent();
    assertTrue(words.contains("shakespeare") && words.contains("5.1"), words);
    if (browser.all("#export details[open]").isEmpty()) {
      browser.click("Export");
    }
    browser.click("PNG");
    Path png = download(".png");
    assertEquals("loupe-shakespeare-5.1.png", png.getFileName().toString());
    browser.await("written", () -> png.toFile().length() > 1000);
    var picture = ImageIO.read(png.toFile());
    assertTrue(picture.getWidth() > 600 && picture.getHeight() > 600);
    if (browser.all("#export details[open]").isEmpty()) {
      browser.click("Export");
    }
    browser.click("npz");
    Path npz = download(".npz");
    browser.await("written", () -> npz.toFile().length() > 1000);
    assertArrayEquals(new byte[] {'P', 'K', 3, 4}, Arrays.copyOf(Files.readAllBytes(npz), 4));
    assertEquals("loupe-shakespeare-5.1.npz", npz.getFileName().toString());
  }

  @Test
  void theKeyboardIsEnough() {
    browser.find("#head-name").click();
    long query = browser.number("s.query");
    browser.keys(Keys.ARROW_UP, Keys.ARROW_UP);
    browser.until("two up", "s.query === " + (query - 2));
    browser.settled();
    long key = browser.number("m.shown().key");
    browser.keys(key > 0 ? Keys.ARROW_LEFT : Keys.ARROW_RIGHT);
    browser.until("another key", "s.key === " + (key > 0 ? key - 1 : key + 1));
    browser.script("m.update({layer: 2, head: 1})");
    browser.settled();
    browser.shifted(Keys.ARROW_DOWN);
    browser.shifted(Keys.ARROW_RIGHT);
    browser.until("head 3.2", "s.layer === 3 && s.head === 2");
    browser.settled();
    browser.keys("3");
    browser.until("the lens", "s.view === 'lens'");
    browser.keys("2");
    browser.until("lines", "s.view === 'lines'");
    browser.keys("1");
    browser.until("the map", "s.view === 'map'");
    browser.keys("i");
    browser.until("the first token aside", "s.ignoreFirst");
    browser.keys("a", "c");
    browser.until("compared", "s.base !== null");
    browser.settled();
    browser.keys(",", ",");
    browser.until("two steps back", "s.step === s.run.tokens.length - 2");
    browser.keys("?");
    browser.await("help", () -> !browser.all("dialog#help[open]").isEmpty());
    browser.keys(Keys.ESCAPE);
    browser.await("no help", () -> browser.all("dialog#help[open]").isEmpty());
    browser.keys("/");
    assertEquals("textarea", browser.driver().switchTo().activeElement().getTagName());
    browser.await(
        "the sentence is spoken",
        () -> browser.property("#status", "textContent").contains("head"));
  }

  @ParameterizedTest
  @CsvSource({"light, map", "light, lines", "dark, lens", "dark, trace"})
  void everybodyCanUseIt(String theme, String view) {
    checkAccess(theme, view);
  }

  @ParameterizedTest
  @CsvSource({"light, lens", "light, numbers", "light, trace", "dark, map", "dark, lines"})
  @Tag("sweep")
  void everybodyCanUseTheOtherViews(String theme, String view) {
    checkAccess(theme, view);
  }

  private void checkAccess(String theme, String view) {
    browser.theme(theme);
    browser.until("the theme", "s.palette === '%s'".formatted(theme));
    browser.script("m.update({view: '%s'})".formatted(view));
    browser.settled();
    browser.await("no skeletons", () -> browser.all("#stage [aria-busy=true]").isEmpty());
    Results results = new AxeBuilder().analyze(browser.driver());
    assertEquals(
        "",
        results.getViolations().stream().map(PageUseTest::words).collect(Collectors.joining("\n")));
    assertTrue(results.getPasses().size() > 15);
  }

  private static String words(Rule rule) {
    return rule.getId()
        + ": "
        + rule.getNodes().stream()
            .limit(3)
            .map(
                node ->
                    node.getHtml() + " " + node.getAny().stream().map(c -> c.getMessage()).toList())
            .toList();
  }

  @ParameterizedTest
  @CsvSource({"1280, 900", "1024, 768", "480, 900", "360, 700"})
  void nothingSticksOut(int width, int height) {
    write("1€ 😀 <script>alert(1)</script>\n\nnaïve", 12, 2);
    browser.size(width, height);
    for (String view : List.of("map", "lines", "lens", "numbers", "trace")) {
      browser.script("m.update({view: '%s'})".formatted(view));
      browser.settled();
      browser.await(
          "no wider than the window",
          () -> browser.number("document.documentElement.scrollWidth") <= width);
    }
    assertTrue(
        browser.all("#tokens .token").stream()
            .map(t -> t.getText().strip())
            .collect(Collectors.joining())
            .contains("<script>alert(1)</script>"));
    assertTrue(
        browser.all("#tokens .character").size() >= 2, "€ and the smile are of several tokens");
    assertEquals("€", browser.all("#tokens .character b").getFirst().getText());
  }

  @ParameterizedTest
  @ValueSource(strings = {"map", "lines"})
  void hoverShowsAndLeavesTheSelection(String view) {
    browser.script("m.update({view: '%s'})".formatted(view));
    browser.settled();
    long query = browser.number("s.query");
    new Actions(browser.driver()).moveToElement(token(4)).perform();
    browser.until("a preview", "s.hover !== null && s.hover.query === 4");
    browser.await("a card", () -> browser.find("#card").isDisplayed());
    WebElement card = browser.find("#card");
    assertTrue(
        card.getRect().y + card.getRect().height <= token(4).getRect().y,
        "the card is above the line");
    new Actions(browser.driver()).moveToElement(browser.find("h1")).perform();
    browser.until("no preview", "s.hover === null");
    assertEquals(query, browser.number("s.query"));
  }

  @Test
  void whenTheServerIsGoneTheTextStays() throws Exception {
    try (Served other = Served.start(Served.options())) {
      browser.go(other.server().address());
    }
    List<Integer> before = ids();
    browser.find("#prompt textarea").sendKeys(" and");
    browser.click("Generate");
    browser.await("a message", () -> browser.text("#message").contains("Loupe has stopped"));
    assertEquals(before, ids());
    assertTrue(browser.property("#prompt textarea", "value").endsWith(" and"));
    assertFalse(browser.complaints().isEmpty(), "the browser itself says that it can't connect");
    browser.driver().get("about:blank");
  }

  @Test
  void aKeyIsAskedForAndSent() throws Exception {
    ServerOptions options =
        new ServerOptions(
            "127.0.0.1", 0, Optional.of("secret"), 4, 2, Duration.ofSeconds(30), Served.MODEL);
    try (Served locked = Served.start(options)) {
      browser.driver().get(locked.server().address());
      browser.await("the question", () -> !browser.all("#key-dialog[open]").isEmpty());
      browser.find("#key-dialog input").sendKeys("secret" + Keys.ENTER);
      browser.settled();
      assertTrue(browser.complaints().stream().allMatch(c -> c.contains("401")));
      browser.driver().get("about:blank");
    }
  }

  /** What GPT-2 has of heads and tokens: only what is in view is asked for, four at a time. */
  @Tag("sweep")
  @Test
  void manyHeadsAndALongText(@TempDir Path folder) throws Exception {
    Loupe many =
        Loupe.open(
            TinyModel.withManyHeads(folder).folder(), Options.defaults().backend(Backend.CPU));
    try (Served large =
        Served.start(many, Served.options(), why -> fail(why), Duration.ofSeconds(30))) {
      browser.go(large.server().address());
      browser.script(
          """
          const ask = window.fetch, open = new Set();
          window.asked = [];
          window.most = 0;
          window.quiet = () => open.size === 0;
          window.fetch = async (path, options) => {
            if (!/tile|rows|thumbs/.test(path)) return ask(path, options);
            window.asked.push(String(path));
            open.add(options);
            window.most = Math.max(window.most, [...open].filter(o => !o?.signal?.aborted).length);
            try { return await ask(path, options); } finally { open.delete(options); }
          };
          const {readIds} = await import('/page/runs.js');
          const ids = Array.from({length: 1000}, (_, i) => i * 7 % 1000);
          await readIds(ids, {layer: 6, head: 6});
          """);
      browser.settled();
      assertEquals(1000, browser.all("#tokens .token").size());
      browser.await("thumbnails", () -> browser.all("#grid .thumb").size() == 13 * 12);
      browser.until("quiet", "window.quiet()");
      browser.script("window.asked.length = 0");
      // from head to head faster than maps come: what is passed is not waited for
      browser.find("#head-name").click();
      for (int i = 0; i < 5; i++) {
        browser.shifted(Keys.ARROW_UP);
        browser.shifted(Keys.ARROW_LEFT);
      }
      browser.until("head 1.1", "s.layer === 1 && s.head === 1");
      browser.settled();
      browser.until("quiet", "window.quiet()");
      long asked = browser.number("window.asked.length");
      assertTrue(asked > 0 && asked <= 10 * 16, asked + " requests for ten heads");
      assertTrue(browser.number("window.most") <= 4, browser.number("window.most") + " at a time");
      // a step back only clips: causal rows never change
      browser.script("window.asked.length = 0");
      for (int i = 0; i < 3; i++) {
        browser.keys(",");
      }
      browser.until("three steps back", "s.step === 997");
      browser.settled();
      browser.until("quiet", "window.quiet()");
      assertEquals(
          "", browser.words("window.asked.filter(path => !path.includes('/rows?')).join()"));
      // Stop keeps what was written
      browser.find("#prompt summary").click();
      fill("tokens", "1000");
      browser.find("#prompt textarea").clear();
      browser.find("#prompt textarea").sendKeys("ROMEO:");
      browser.click("Generate");
      browser.until("tokens", "s.draft !== null && s.draft.tokens.length > 10");
      browser.click("Stop");
      browser.settled();
      long tokens = browser.number("s.run.tokens.length");
      assertTrue(tokens > 10 && tokens < 900, tokens + " tokens");
      assertTrue(browser.find("#message").getText().isEmpty());
      browser.driver().get("about:blank");
    }
  }
}
