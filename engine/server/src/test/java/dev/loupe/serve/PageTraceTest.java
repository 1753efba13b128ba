package dev.loupe.serve;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.export.trace.Sentence;
import dev.loupe.export.trace.TraceWords;
import dev.loupe.generate.Prompt;
import dev.loupe.interpret.RowNumbers;
import dev.loupe.interpret.trace.PatchGrid;
import dev.loupe.interpret.trace.Trace;
import dev.loupe.interpret.trace.TraceRequest;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.openqa.selenium.WebElement;

/** Traces, numbers and patches on the page, and views as files. */
class PageTraceTest extends PageInBrowser {
  private static final String TWICE = "The priest is ready, sir.\nThe priest is ready, sir.\n";

  /** Reads a text, and writes nothing. */
  private static void read(String text) {
    write(text, 0, 1);
  }

  private static Prompt prompt() {
    return Prompt.ids(ids().stream().mapToInt(Integer::intValue).toArray());
  }

  private static void start(String button, String result) {
    browser.click(button);
    browser.await("the result", () -> !browser.all("#trace " + result).isEmpty());
  }

  private static List<String> sentences() {
    return browser.all("#trace .sentences li").stream().map(WebElement::getText).toList();
  }

  @Test
  void aTokenIsTracedAndSavedInFourPresses() throws Exception {
    read(TWICE);
    token(14).click();
    browser.click("Trace");
    start("Start trace", ".sentences");
    Trace trace = served.loupe().trace(TraceRequest.of(prompt()).at(14));
    List<String> expected = TraceWords.of(trace).stream().map(Sentence::text).toList();
    assertEquals(expected, sentences());
    for (int head = 0; head < 3; head++) { // the previous-token head feeds the induction heads
      String keys = "With 4.0 at its mean in the keys of 5.%d alone, it falls by ".formatted(head);
      assertTrue(expected.stream().anyMatch(each -> each.startsWith(keys)), expected.toString());
    }
    browser.click("Save as HTML");
    Path file = download("trace-14.html");
    browser.await("written", () -> file.toFile().length() > 5000);
    String page = Files.readString(file);
    assertFalse(page.contains("<script"), "it has no script");
    assertTrue(page.contains("default-src 'none'"));
    browser.driver().get(file.toUri().toString());
    assertEquals(expected, browser.all("ol li").stream().map(WebElement::getText).toList());
    assertTrue(browser.all(".drawing [data-name]").size() > 6);
  }

  @Test
  void partsOfTheDrawingOpenTheirNumbers() {
    read(TWICE);
    token(14).click();
    browser.click("Trace");
    start("Start trace", ".drawing [data-name]");
    browser.script(
        "document.querySelector('#trace [data-name^=\"4.0@\"]').dispatchEvent(new Event('click',"
            + " {bubbles: true}))");
    browser.await("its numbers", () -> !browser.all("#trace .panel.chosen").isEmpty());
    assertTrue(browser.text("#trace .panel.chosen").contains("Replaced at all tokens: −"));
    browser.click("Its numbers");
    browser.await("the steps", () -> !browser.all("#numbers .steps").isEmpty());
    assertEquals("4.0", browser.words("`${s.layer}.${s.head}`"));
    assertTrue(browser.number("s.query") < 14);
  }

  @Test
  void aTraceIsStopped() {
    read(TWICE.repeat(5));
    browser.click("Trace");
    browser.click("Start trace");
    browser.click("Stop");
    browser.await("it stands", () -> !browser.all("#trace .main").isEmpty());
    assertEquals(List.of(), browser.all("#trace .sentences, #trace [role=alert]"));
  }

  @Test
  void numbersAreTheLibrarys() {
    read("To be or not to be");
    browser.script("m.update({view: 'numbers', layer: 2, head: 1, query: 4, key: 2})");
    browser.settled();
    browser.await("the steps", () -> !browser.all("#numbers .steps").isEmpty());
    RowNumbers row = served.loupe().row(prompt(), 2, 1, 4, -1);
    RowNumbers.Key key = row.keys().get(2);
    List<String> bold = browser.all("#numbers .steps b").stream().map(WebElement::getText).toList();
    double sum = key.products().stream().mapToDouble(Double::doubleValue).sum();
    assertEquals(sum, Double.parseDouble(bold.getFirst().replace('−', '-')), 0.01);
    assertEquals(key.score(), Double.parseDouble(bold.get(1).replace('−', '-')), 0.01);
    assertEquals(String.format(Locale.ROOT, "%.3f", key.weight()), bold.get(2));
    assertEquals(64, browser.all("#numbers .products rect").size());
    assertEquals(5, browser.all("#numbers .keys tbody tr").size());
    browser.click("csv");
    Path file = download("row-2.1-4.csv");
    browser.await("written", () -> file.toFile().length() > 500);
  }

  @Test
  void aSecondTextIsPatched() {
    read("The priest is ready, sir.");
    token(5).click();
    browser.click("Trace");
    browser.find("#trace summary").click();
    WebElement box = browser.find("#trace textarea");
    box.clear();
    box.sendKeys("The priest was");
    browser.click("Use it");
    browser.await("what is wrong", () -> browser.text("#message").contains("The second text has "));
    box.clear();
    box.sendKeys("The priest was re");
    browser.click("Use it");
    browser.until("it is read", "s.asked.second !== null");
    browser.click("Layers");
    start("Start patching", ".patches");
    int[] second =
        browser.numbers("return s.asked.second").stream().mapToInt(Number::intValue).toArray();
    PatchGrid grid =
        served
            .loupe()
            .patch(
                TraceRequest.of(prompt()).at(5).patch(Prompt.ids(second)), PatchGrid.Kind.LAYERS);
    double largest =
        grid.rows().stream()
            .flatMap(row -> row.effects().stream())
            .mapToDouble(Math::abs)
            .max()
            .orElseThrow();
    String shown = browser.text("#trace .readout").replace('−', '-').replace("+", "");
    assertEquals(
        largest, Math.abs(Double.parseDouble(shown.substring(shown.lastIndexOf(' ')))), 0.001);
    String address = browser.words("location.hash");
    assertTrue(address.contains("v=trace") && address.contains("w=layers"), address);
    browser.driver().navigate().refresh();
    browser.settled();
    assertEquals("layers", browser.words("s.asked.what"));
    assertEquals(second.length, browser.number("s.asked.second.length"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"map", "lines", "lens", "numbers"})
  void aViewIsAFile(String view) throws Exception {
    browser.script("m.update({view: '%s'})".formatted(view));
    browser.settled();
    browser.await("no skeletons", () -> browser.all("#stage [aria-busy=true]").isEmpty());
    String sentence = browser.text("#sentence");
    browser.click("Export");
    browser.click("HTML");
    Path file = download(view + ".html");
    browser.await("written", () -> file.toFile().length() > 5000);
    assertFalse(Files.readString(file).contains("<script"), "it has no script");
    browser.driver().get(file.toUri().toString());
    assertEquals(sentence, browser.text("#sentence"));
    assertEquals(List.of(), browser.all("button, input, script"));
    assertTrue(browser.all("#tokens .token").size() > 30);
    if (view.equals("map")) {
      Object wide =
          browser
              .driver()
              .executeScript("return document.querySelector('#map img').naturalWidth > 100");
      assertEquals(true, wide);
    }
  }
}
