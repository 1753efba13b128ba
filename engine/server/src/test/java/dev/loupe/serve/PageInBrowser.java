package dev.loupe.serve;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.Browser;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Token;
import dev.loupe.sampling.Sampling;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.openqa.selenium.WebElement;

/** The workbench of the demo model in Chromium, and what somebody does there again and again. */
@Timeout(200)
abstract class PageInBrowser {
  static Served served;
  static Browser browser;

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

  static void write(String prompt, int tokens, int seed) {
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

  static void fill(String name, String value) {
    WebElement field = browser.find("#prompt [name=" + name + "]");
    field.clear();
    field.sendKeys(value);
  }

  /** What the library writes with the page's sampling. */
  static Generation lone(String prompt, int tokens, int seed) {
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

  static List<Integer> ids() {
    return browser.numbers("return s.run.tokens.map(t => t.id)").stream()
        .map(Number::intValue)
        .toList();
  }

  static List<Integer> ids(Generation run) {
    return run.tokens().stream().map(Token::id).toList();
  }

  static int last() {
    return (int) browser.number("s.run.tokens.length - 1");
  }

  static WebElement token(int i) {
    return browser.all("#tokens .token").get(i);
  }

  /** The file that the browser saved, by how its name ends. */
  static Path download(String ending) {
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
}
