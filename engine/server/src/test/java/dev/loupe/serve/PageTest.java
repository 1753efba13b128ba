package dev.loupe.serve;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.attention.AttentionSelection;
import dev.loupe.attention.HeadScore;
import dev.loupe.export.page.Palette;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Prompt;
import dev.loupe.generate.ReadRequest;
import dev.loupe.model.Interventions;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.openqa.selenium.WebElement;

/** What the workbench shows of a text, in a browser: the numbers are the library's. */
class PageTest extends PageInBrowser {
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
        "the heads of largest effect",
        () -> browser.text("#inspector").contains("Largest direct effects on its logit"));
    String words = browser.text("#inspector");
    assertTrue(words.contains("Predicted after") && words.contains("Top 5 here"), words);
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
    String said = browser.text("#inspector [aria-label=Comparison]");
    assertTrue(said.contains("Output of head 4.0 set to zero."), said);
    assertTrue(said.contains("Mean change of log-probability, nats a token: "), said);
    assertTrue(said.contains(" in the prompt, ") && said.contains(" in what was generated"), said);
    // the head whose map changed most is open, and its comparison in view
    assertEquals(
        0,
        browser.fraction(
            "Math.max(...s.compare.variation.flat()) - s.compare.variation[s.layer][s.head]"));
    assertTrue(browser.number("s.layer") > 4, "4.0 itself reads what it read");
    assertTrue(
        browser.fraction(
                "document.querySelector('[aria-label=Comparison] h3').getBoundingClientRect().top")
            < browser.number("innerHeight"));
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
    String words = browser.text("#inspector [aria-label=Comparison]");
    assertTrue(words.contains("Every token sees the later ones too."), words);
    assertTrue(words.contains("sees the one it has to predict"), words);
    assertFalse(words.contains("Mean change"), words);
  }

  @Test
  void theMeanMayStandInForAHeadThatIsLeftOutAlready() {
    browser.script("m.update({layer: 4, head: 0})");
    browser.settled();
    browser.click("Ablate 4.0");
    browser.until("it is zero", "s.changes.length === 1 && s.changes[0].factor === 0");
    browser.script(
        """
        const e = document.querySelector('#inspector [aria-label="What stands in for it"]');
        e.value = 'mean';
        e.dispatchEvent(new Event('change'));
        """);
    browser.until("it is the mean", "s.changes.length === 1 && s.changes[0].mean === true");
  }

  @Test
  void aTextIsOnlyReadAndItsTokensCounted() {
    WebElement box = browser.find("#prompt textarea");
    box.clear();
    box.sendKeys("To be or not");
    browser.await("the count", () -> browser.text("#prompt .under").contains("5 of 256 tokens"));
    String before = browser.words("s.run.id");
    browser.click("Read only");
    browser.await("another run", () -> !before.equals(browser.words("s.run.id")));
    browser.settled();
    assertEquals(5, browser.number("s.run.tokens.length"));
    assertEquals("To be or not", browser.property("#prompt textarea", "value"));
    browser.click("Show on repeated text");
    browser.until("the repeated text", "s.run.tokens.length > 20");
    browser.settled();
    assertFalse(browser.property("#prompt textarea", "value").startsWith("To be or not"));
  }
}
