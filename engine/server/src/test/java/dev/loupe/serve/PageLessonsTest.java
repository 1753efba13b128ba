package dev.loupe.serve;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Locale;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.openqa.selenium.WebElement;

/** The lessons: every step comes, with numbers of the model. */
class PageLessonsTest extends PageInBrowser {
  private static String words() {
    return browser.text("#lesson p");
  }

  /** Waits until a step is there with all its numbers. */
  private static String step(int id, int step) {
    browser.until("the step", "s.lesson?.id === %d && s.lesson.step === %d".formatted(id, step));
    browser.await("its numbers", () -> !words().isBlank() && !words().contains("…"));
    return words();
  }

  @ParameterizedTest
  @CsvSource({
    "Tokens, 0, 3",
    "One row, 1, 4",
    "Induction, 2, 3",
    "Why this token, 3, 3",
    "The mask, 4, 3"
  })
  void everyStepHasItsNumbers(String link, int id, int steps) {
    browser.click(link);
    for (int i = 0; i < steps; i++) {
      String said = step(id, i);
      assertFalse(said.matches("(?s).*(undefined|NaN|null).*"), said);
      if (i + 1 < steps) {
        browser.click("Next");
      }
    }
    List<WebElement> next = browser.all("#lesson button.main");
    assertFalse(next.getFirst().isEnabled(), "the last step");
  }

  @Test
  void numbersAreThoseOfTheModel() {
    browser.click("Why this token");
    step(3, 0);
    browser.keys("n");
    step(3, 1);
    browser.keys("n");
    String said = step(3, 2);
    double change =
        browser.fraction("s.run.tokens[s.query + 1].logprob - s.base.tokens[s.query + 1].logprob");
    assertTrue(
        said.replace('−', '-')
            .contains(String.format(Locale.ROOT, "changes by %+.2f nats", change)),
        said + " " + change);
    browser.keys("b");
    step(3, 1);
    assertEquals("lens", browser.words("s.view"));
  }

  @Test
  void aLinkOpensTheStep() {
    browser.click("Tokens");
    step(0, 0);
    browser.click("Next");
    String said = step(0, 1);
    browser.until("the address", "location.hash.includes('y=0.1')");
    browser.driver().navigate().refresh();
    browser.settled();
    assertEquals(said, step(0, 1));
    browser.click("Large text");
    assertTrue(browser.all("#lesson.large").size() == 1);
    browser.click("Leave the lesson");
    browser.until("it is left", "s.lesson === null");
    assertTrue(browser.all("#lesson h2").isEmpty());
  }
}
