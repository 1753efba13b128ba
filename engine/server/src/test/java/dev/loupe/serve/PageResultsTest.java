package dev.loupe.serve;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.deque.html.axecore.results.Results;
import com.deque.html.axecore.selenium.AxeBuilder;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Where the page shows what was asked for, and what it says while it waits. */
class PageResultsTest extends PageInBrowser {
  @Test
  void aLongPromptLeavesTheMapInView() {
    browser.size(1280, 800);
    write("To be\n".repeat(30).strip(), 0, 1);
    browser.find("#prompt summary").click(); // the fields of sampling close
    assertTrue(
        browser.number("document.querySelector('#prompt textarea').offsetHeight") <= 6 * 22 + 16);
    browser.await(
        "the map",
        () ->
            browser.number("document.querySelector('#map .map-box').getBoundingClientRect().top")
                < 700);
  }

  @Test
  void aRowThatSpreadsHasALine() {
    browser.script(
        "const {readIds} = await import('/page/runs.js');"
            + " await readIds(Array.from({length: 250}, (_, i) => i * 7 % 1000))");
    browser.settled();
    browser.script("m.update({layer: 0, head: 2, query: 239, key: -1, view: 'lines'})");
    browser.settled();
    double most = browser.fraction("Math.max(...m.rowOf(0, 2, 239))");
    assertTrue(most < 0.02, "a diffuse row: " + most);
    browser.await("its line", () -> browser.text("#lines .lines-foot").contains("1 line,"));
  }

  @Test
  void whatIsCountedIsSaidToBe() {
    browser.script("m.update({stats: null})");
    browser.await("it is said", () -> browser.text("#inspector .scores").contains("counting"));
    assertFalse(browser.text("#inspector .scores").contains("–"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"place", "induction", "normalised_entropy"})
  void aHeadsNameHasTheWordsOnIt(String sort) {
    browser.script("m.update({sort: '%s', onRepeated: true})".formatted(sort));
    browser.settled();
    Results results =
        new AxeBuilder()
            .withRules(List.of("label-content-name-mismatch", "button-name"))
            .analyze(browser.driver());
    assertEquals(
        List.of(), results.getViolations().stream().map(r -> r.getNodes().toString()).toList());
  }

  @Test
  void afterARestartThePageAsksAgain() throws Exception {
    int port;
    try (Served other = Served.start(Served.options())) {
      browser.go(other.server().address());
      port = other.server().port();
    }
    browser.script("m.update({layer: 1, head: 1, query: 7, key: -1})");
    browser.await("a message", () -> browser.text("#message").contains("Loupe has stopped"));
    ServerOptions again =
        new ServerOptions(
            "127.0.0.1", port, Optional.empty(), 16, 8, Duration.ofSeconds(60), Served.MODEL);
    try (Served _ = Served.start(again)) {
      browser.until("the row", "m.rowOf(1, 1, 7) !== null");
      browser.await("no message", () -> browser.text("#message").isEmpty());
      browser.await("what it reads", () -> browser.text("#sentence").contains("looks most at"));
      assertFalse(browser.complaints().isEmpty(), "the browser itself said that it can't connect");
      browser.driver().get("about:blank");
    }
  }
}
