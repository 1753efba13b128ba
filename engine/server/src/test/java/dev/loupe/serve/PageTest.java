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
import dev.loupe.Browser;
import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.attention.HeadScore;
import dev.loupe.export.page.Palette;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Prompt;
import dev.loupe.generate.ReadRequest;
import dev.loupe.generate.Token;
import dev.loupe.model.Interventions;
import dev.loupe.sampling.Sampling;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import javax.imageio.ImageIO;
import javax.xml.parsers.DocumentBuilderFactory;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.openqa.selenium.Keys;
import org.openqa.selenium.WebElement;
import org.openqa.selenium.interactions.Actions;

/** The workbench in a browser, as somebody uses it, on the demo model. */
@Timeout(200)
class PageTest {
  private static Served served;
  private static Browser browser;

  @TempDir static Path downloads;

  @BeforeAll
  static void start() throws Exception {
    browser = Browser.open(downloads);
    served = Served.start(Served.options());
  }

  @AfterAll
  static void stop() {
    if (served != null) {
      served.close();
    }
    if (browser != null) {
      browser.close();
    }
  }

  @BeforeEach
  void open() {
    browser.size(1280, 900).theme("light").go(served.server().address());
    List<String> _ = browser.requests();
  }

  @AfterEach
  void nothingWentWrong() {
    assertEquals(List.of(), browser.complaints());
  }

  private static void write(String prompt, int tokens, int seed) {
    if (!browser.property("#prompt details", "open").equals("true")) {
      browser.find("#prompt summary").click();
    }
    fill("tokens", String.valueOf(tokens));
    fill("seed", String.valueOf(seed));
    WebElement box = browser.find("#prompt textarea");
    box.clear();
    if (prompt.codePoints().allMatch(Character::isBmpCodePoint)) {
      box.sendKeys(prompt);
    } else { // keys that some versions of Chromium's driver do not have
      browser.script("a[0].value = a[1]; a[0].dispatchEvent(new Event('input'))", box, prompt);
    }
    String before = browser.words("s.run.id");
    browser.click("Generate");
    browser.await("another run", () -> !before.equals(browser.words("s.run.id")));
    browser.settled();
  }

  private static void fill(String name, String value) {
    WebElement field = browser.find("#prompt [name=" + name + "]");
    field.clear();
    field.sendKeys(value);
  }

  /** What the library writes with the page's sampling. */
  private static Generation lone(String prompt, int tokens, int seed) {
    Sampling sampling = Sampling.seeded(seed).withTemperature(0.8).withTopK(40).withTopP(0.95);
    return served
        .loupe()
        .run(
            GenerateRequest.text(prompt)
                .tokens(tokens)
                .sampling(sampling)
                .logprobs(5)
                .attention(AttentionSelection.all()))
        .getFirst();
  }

  private static List<Integer> ids() {
    return browser.numbers("return s.run.tokens.map(t => t.id)").stream()
        .map(Number::intValue)
        .toList();
  }

  private static List<Integer> ids(Generation run) {
    return run.tokens().stream().map(Token::id).toList();
  }

  private static int last() {
    return (int) browser.number("s.run.tokens.length - 1");
  }

  private static WebElement token(int i) {
    return browser.all("#tokens .token").get(i);
  }

  @Test
  void theFirstLookIsComplete() throws Exception {
    browser.go(served.server().address());
    browser.await("thumbnails", () -> browser.all("#grid .thumb").size() == 18);
    assertEquals(last(), browser.number("s.query"));
    String sentence = browser.text("#sentence");
    assertTrue(
        sentence.matches("(?s).* head \\d\\.\\d, looks most at .*: [01]\\.\\d\\d\\."), sentence);
    Matcher head = Pattern.compile("head (\\d)\\.(\\d)").matcher(sentence);
    assertTrue(head.find());
    assertEquals("Head " + head.group(1) + "." + head.group(2), browser.text("#head-name"));
    assertEquals(browser.number("s.run.tokens.length"), browser.all("#tokens .token").size());
    assertTrue(browser.text("#count").endsWith("/256 tokens"));
    // the strongest single weight of the last row, the first and last key aside
    int[] ids = ids().stream().mapToInt(i -> i).toArray();
    Generation run =
        served
            .loupe()
            .run(GenerateRequest.ids(ids).tokens(0).attention(AttentionSelection.all()))
            .getFirst();
    double most = 0;
    String strongest = "";
    for (int layer = 0; layer < 6; layer++) {
      for (int h = 0; h < 3; h++) {
        float[] row = run.attention().row(layer, h, ids.length - 1);
        for (int key = 1; key < row.length - 1; key++) {
          if (row[key] > most) {
            most = row[key];
            strongest = layer + "." + h;
          }
        }
      }
    }
    assertEquals(strongest, head.group(1) + "." + head.group(2));
  }

  @Test
  void everythingIsAskedOfThisServer() {
    browser.go(served.server().address());
    browser.click("Lens");
    browser.click("Lines");
    browser.click("Map");
    List<String> requests = browser.requests();
    assertTrue(requests.size() > 15, requests.toString());
    for (String request : requests) {
      assertTrue(
          request.startsWith(served.server().address() + "/")
              || request.startsWith("blob:" + served.server().address() + "/")
              || request.equals("about:blank"),
          request);
    }
  }

  @Test
  void itWritesWhatTheLibraryWrites() {
    write("ROMEO:\nTo be", 30, 5);
    Generation expected = lone("ROMEO:\nTo be", 30, 5);
    assertEquals(ids(expected), ids());
    List<WebElement> tokens = browser.all("#tokens .token");
    assertEquals(expected.tokens().size(), tokens.size());
    for (int i = 0; i < tokens.size(); i++) {
      assertEquals(expected.tokens().get(i).label(), tokens.get(i).getText().strip());
    }
    assertEquals(expected.promptLength(), browser.number("s.run.prompt_length"));
    assertEquals(
        expected.promptLength(),
        browser.number(
            "[...document.querySelectorAll('#tokens .token, #tokens .rule')].findIndex(e => e.classList.contains('rule'))"));
  }

  @Test
  void textAppearsWhileItIsWritten() {
    // a busy machine may draw few frames while a text is written: then it is written again
    List<Number> lengths = List.of();
    for (int i = 0; i < 20 && lengths.stream().distinct().count() <= 3; i++) {
      lengths =
          browser.numbers(
              """
              const {generate} = await import('/page/runs.js');
              const lengths = [];
              m.subscribe(s => { if (s.draft) lengths.push(s.draft.tokens.length); });
              await generate({text: 'ROMEO:', tokens: 150, seed: 3});
              return lengths;
              """);
    }
    assertTrue(lengths.stream().distinct().count() > 3, lengths.toString());
    browser.settled();
  }

  @Test
  void whatIsTooLongIsSaid() {
    browser.find("#prompt summary").click();
    fill("tokens", "0");
    browser.script(
        "const t = document.querySelector('#prompt textarea'); t.value = 'to be '.repeat(200);"
            + " t.dispatchEvent(new Event('input'))");
    browser.click("Generate");
    browser.await("a message", () -> !browser.text("#message").isEmpty());
    assertTrue(
        browser
            .text("#message")
            .matches("(?s)\\d{3} tokens; this model reads 256\\. Remove \\d+\\..*"),
        browser.text("#message"));
    assertTrue(browser.complaints().stream().allMatch(c -> c.contains("400")), "the refusal alone");
    fill("temperature", "hot");
    browser.click("Generate");
    browser.await("a message", () -> browser.text("#message").contains("Temperature"));
    assertEquals(
        "true", browser.find("#prompt [name=temperature]").getDomAttribute("aria-invalid"));
  }

  @Test
  void aTokenSelectsItsRow() {
    write("To be or not to be, to be or not", 10, 1);
    Generation expected = lone("To be or not to be, to be or not", 10, 1);
    token(9).click();
    browser.settled();
    assertEquals(9, browser.number("s.query"));
    assertTrue(String.valueOf(token(9).getDomAttribute("class")).contains("query"));
    assertTrue(String.valueOf(token(10).getDomAttribute("class")).contains("chosen"));
    browser.script("m.update({layer: 5, head: 1})");
    browser.settled();
    float[] row = expected.attention().row(5, 1, 9);
    int most = 0;
    for (int key = 0; key < row.length; key++) {
      most = row[key] > row[most] ? key : most;
    }
    assertEquals(
        "%s 9, head 5.1, looks most at %s %d: %.2f."
            .formatted(
                expected.tokens().get(9).label(),
                expected.tokens().get(most).label(),
                most,
                row[most]),
        browser.text("#sentence"));
    // the readout is the very float
    String readout = browser.text("#map .readout b");
    assertEquals(row[most], Float.parseFloat(readout));
    // Back is the selection before
    browser.driver().navigate().back();
    browser.until("the selection before", "s.query === s.run.tokens.length - 1");
  }

  @Test
  void whyATokenGoesToTheRowThatChoseIt() {
    token(20).click();
    browser.settled();
    browser.click("Why this token?");
    browser.settled();
    assertEquals(19, browser.number("s.query"));
    browser.await(
        "the heads that push it",
        () -> browser.text("#inspector").contains("Heads that push it most"));
    String words = browser.text("#inspector");
    assertTrue(words.contains("Chosen by row") && words.contains("What it could have been"), words);
    browser.click("Open the lens");
    browser.await("the lens", () -> browser.all("#lens table.layers tbody tr").size() == 7);
  }

  /** The colour that the palette has for a byte of a tile: its place by square root. */
  private static int colour(Palette palette, double position) {
    double place = Math.round(1023 * position) / 1023.0 * (palette.stops().size() - 1);
    int below = Math.min((int) place, palette.stops().size() - 2);
    int mixed = 0;
    for (int shift = 16; shift >= 0; shift -= 8) {
      int a = Integer.decode(palette.stops().get(below)) >> shift & 255;
      int b = Integer.decode(palette.stops().get(below + 1)) >> shift & 255;
      mixed |= (int) Math.round(a + (place - below) * (b - a)) << shift;
    }
    return mixed;
  }

  private static int pixel(int query, int key) {
    return (int)
        browser.number(
            """
            (await (async () => {
              const {view} = await import('/page/map.js');
              const c = document.querySelector('#map canvas');
              const x = Math.round(view.left + (%d + 0.5 - view.column) * view.scale);
              const y = Math.round(view.top + (%d + 0.5 - view.row) * view.scale);
              const [r, g, b] = c.getContext('2d').getImageData(x, y, 1, 1).data;
              return r << 16 | g << 8 | b;
            })())"""
                .formatted(key, query));
  }

  private static void assertPixels(Generation run, Palette palette, String scale) {
    browser.await("tiles", () -> pixel(1, 0) != 0);
    for (int query : new int[] {0, 3, 12, 20}) {
      float[] row = run.attention().row(5, 1, query);
      for (int key = 0; key <= query; key += 3) {
        long value = Math.round(255 * Math.sqrt(row[key]));
        double position = scale.equals("sqrt") ? value / 255.0 : value * value / (255.0 * 255);
        int expected = colour(palette, position);
        int at = key;
        browser.await(
            "cell %d, %d is #%06x and not #%06x".formatted(query, key, expected, pixel(query, key)),
            () -> pixel(query, at) == expected);
      }
    }
  }

  @Test
  void aCellHasTheColourOfItsWeight() {
    write("To be or not to be, to be or not", 10, 1);
    Generation run = lone("To be or not to be, to be or not", 10, 1);
    browser.script("m.update({layer: 5, head: 1})");
    browser.settled();
    assertPixels(run, Palette.SEQUENTIAL_LIGHT, "sqrt");
    browser.find("#head-name").click();
    browser.keys("s");
    browser.until("linear", "s.scale === 'linear'");
    assertPixels(run, Palette.SEQUENTIAL_LIGHT, "linear");
    browser.theme("dark");
    browser.until("dark", "s.palette === 'dark'");
    assertPixels(run, Palette.SEQUENTIAL_DARK, "linear");
  }

  @Test
  void ignoringTheFirstTokenLeavesItOutOfTheMost() {
    write("To be or not to be, to be or not", 10, 1);
    Generation run = lone("To be or not to be, to be or not", 10, 1);
    browser.script("m.update({layer: 5, head: 0, query: 9})");
    browser.settled();
    browser.click("Ignore first token");
    browser.until("it is", "s.ignoreFirst");
    float[] row = run.attention().row(5, 0, 9);
    int most = 1;
    for (int key = 1; key < row.length; key++) {
      most = row[key] > row[most] ? key : most;
    }
    assertEquals(most, browser.number("m.shown().key"));
    assertTrue(
        browser.text("#inspector .chip").startsWith("first token: "), browser.text("#inspector"));
    assertEquals(
        row[most], Float.parseFloat(browser.text("#map .readout b"))); // raw, not made larger
  }

  @Test
  void headsAreFoundByWhatTheyDo() {
    WebElement sort = browser.find("#grid select");
    sort.click();
    sort.sendKeys("Induction");
    browser.script(
        "const e = document.querySelector('#grid select'); e.value = 'induction';"
            + " e.dispatchEvent(new Event('change', {bubbles: true}))");
    browser.until("sorted", "s.sort === 'induction'");
    browser.click("Show on repeated text");
    browser.settled();
    browser.script("m.update({onRepeated: true})");
    browser.await("a list", () -> browser.all("#grid .ranks .head").size() == 18);
    List<String> first =
        browser.all("#grid .ranks .head b").stream()
            .limit(3)
            .map(WebElement::getText)
            .sorted()
            .toList();
    assertEquals(List.of("5.0", "5.1", "5.2"), first);
    browser.all("#grid .ranks .head").getFirst().click();
    browser.settled();
    assertEquals(5, browser.number("s.layer"));
    String words = browser.text("#inspector");
    assertTrue(words.contains("Induction"), words);
    double score =
        served
            .loupe()
            .heads(Prompt.text(""))
            .onRepeated()
            .score(HeadScore.INDUCTION, 5, (int) browser.number("s.head"));
    assertTrue(words.contains("%.3f".formatted(score)), words);
    // sinks are weak in this model, and the page says so
    browser.script("m.update({sort: 'first_token', onRepeated: true})");
    browser.await(
        "the weak role", () -> browser.text("#grid").contains("No head above 0.4; strongest"));
  }

  @Test
  void aHeadLeftOutIsComparedAndPutBack() {
    write("To be or not to be, to be or not", 10, 1);
    int[] ids = ids().stream().mapToInt(i -> i).toArray();
    browser.script("m.update({layer: 4, head: 0})");
    browser.settled();
    browser.click("Ablate 4.0");
    browser.click("Compare");
    browser.until("compared", "s.base !== null && s.compare !== null");
    browser.settled();
    var expected =
        served
            .loupe()
            .compare(
                ReadRequest.of(Prompt.ids(ids).length((int) browser.number("s.run.prompt_length")))
                    .interventions(Interventions.NONE.scale(4, 0, 0)));
    List<WebElement> deltas = browser.all("#tokens .delta");
    assertEquals(ids.length, deltas.size());
    for (int i = 1; i < ids.length; i++) {
      double change = expected.logprobs().get(i) - expected.tokens().get(i).logprob();
      String words = deltas.get(i).getText();
      if (change > 0.006) {
        assertTrue(words.startsWith("▲"), words + " for " + change);
      } else if (change < -0.006) {
        assertTrue(words.startsWith("▼"), words + " for " + change);
      }
      double shown = Double.parseDouble(words.replaceAll("[▲▼+]", "").replace('−', '-'));
      assertEquals(change, shown, 0.006);
      assertEquals(
          expected.divergences().get(i),
          browser.fraction("s.compare.divergences[%d]".formatted(i)),
          1e-5);
    }
    assertTrue(browser.text("#inspector").contains("Compared with the model as it is"));
    browser.click("Leave the comparison");
    browser.settled();
    assertEquals(null, browser.script("return s.base"));
    assertEquals(0, browser.number("s.run.changes.length"));
  }

  @Test
  void theMaskCanBeLeftOut() {
    browser.click("every token could see the later ones?");
    browser.until("compared", "s.base !== null && s.run.mask === 'none'");
    browser.settled();
    browser.until("a whole row", "m.rowOf(0, 0, 2)?.length === s.run.tokens.length");
    assertTrue(browser.text("#inspector").contains("every token sees the later ones too"));
  }

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

  private static Path download(String ending) {
    browser.await(
        "a file",
        () -> {
          try (var files = Files.list(downloads)) {
            return files.anyMatch(file -> file.toString().endsWith(ending));
          } catch (IOException e) {
            return false;
          }
        });
    try (var files = Files.list(downloads)) {
      return files.filter(file -> file.toString().endsWith(ending)).findFirst().orElseThrow();
    } catch (IOException e) {
      throw new AssertionError(e);
    }
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
  @CsvSource({
    "light, map",
    "light, lines",
    "light, lens",
    "dark, map",
    "dark, lines",
    "dark, lens"
  })
  void everybodyCanUseIt(String theme, String view) {
    browser.theme(theme);
    browser.until("the theme", "s.palette === '%s'".formatted(theme));
    browser.script("m.update({view: '%s'})".formatted(view));
    browser.settled();
    browser.await("no skeletons", () -> browser.all("#stage [aria-busy=true]").isEmpty());
    Results results = new AxeBuilder().analyze(browser.driver());
    assertEquals(
        "",
        results.getViolations().stream().map(PageTest::words).collect(Collectors.joining("\n")));
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
    for (String view : List.of("map", "lines", "lens")) {
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
