package dev.loupe;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.function.BooleanSupplier;
import java.util.logging.Level;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import org.openqa.selenium.By;
import org.openqa.selenium.Keys;
import org.openqa.selenium.OutputType;
import org.openqa.selenium.WebElement;
import org.openqa.selenium.chrome.ChromeDriver;
import org.openqa.selenium.chrome.ChromeDriverService;
import org.openqa.selenium.chrome.ChromeOptions;
import org.openqa.selenium.interactions.Actions;
import org.openqa.selenium.logging.LogEntry;
import org.openqa.selenium.logging.LogType;
import org.openqa.selenium.logging.LoggingPreferences;

/** Chromium without a window, on the workbench; other pages are for its driver. */
public record Browser(ChromeDriver driver) implements AutoCloseable {
  private static final Duration PATIENCE = Duration.ofSeconds(60);

  /** Skips the test, with the reason, where there is no Chromium, or no driver for it. */
  public static Browser open(Path downloads) {
    Optional<Path> chromium = program("chromium", "chromium-browser", "google-chrome");
    Optional<Path> driver = program("chromedriver");
    assumeTrue(chromium.isPresent(), "no chromium, chromium-browser or google-chrome on the PATH");
    assumeTrue(driver.isPresent(), "no chromedriver on the PATH");
    ChromeOptions options = new ChromeOptions();
    options.setBinary(chromium.get().toFile());
    options.addArguments(
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking");
    options.setExperimentalOption(
        "prefs", Map.of("download.default_directory", downloads.toString()));
    LoggingPreferences logs = new LoggingPreferences();
    logs.enable(LogType.BROWSER, Level.ALL);
    logs.enable(LogType.PERFORMANCE, Level.ALL);
    options.setCapability("goog:loggingPrefs", logs);
    ChromeDriverService service =
        new ChromeDriverService.Builder()
            .usingDriverExecutable(driver.get().toFile())
            .usingAnyFreePort()
            .build();
    return new Browser(new ChromeDriver(service, options));
  }

  private static Optional<Path> program(String... names) {
    return Stream.of(names)
        .flatMap(
            name ->
                Stream.of(System.getenv().getOrDefault("PATH", "").split(File.pathSeparator, -1))
                    .map(folder -> Path.of(folder, name)))
        .filter(Files::isExecutable)
        .findFirst();
  }

  /** A window of so many CSS pixels, one device pixel each. */
  public Browser size(int width, int height) {
    Object _ =
        driver.executeCdpCommand(
            "Emulation.setDeviceMetricsOverride",
            Map.of("width", width, "height", height, "deviceScaleFactor", 1, "mobile", false));
    return this;
  }

  public Browser theme(String name) {
    return media("", name);
  }

  /** As it would be printed by a reader with that theme. */
  public Browser paper(String theme) {
    return media("print", theme);
  }

  private Browser media(String medium, String theme) {
    Map<String, String> scheme = Map.of("name", "prefers-color-scheme", "value", theme);
    Object _ =
        driver.executeCdpCommand(
            "Emulation.setEmulatedMedia", Map.of("media", medium, "features", List.of(scheme)));
    return this;
  }

  /** Opens an address and waits until a run is shown, and nothing is under way. */
  public Browser go(String address) {
    driver.get("about:blank"); // or the same page with another fragment would stay
    driver.get(address);
    return settled();
  }

  /** Waits until a run is shown with its statistics, rows and pictures. */
  public Browser settled() {
    until(
        "the page settles",
        "s.info !== null && s.heads !== null && s.run !== null && s.busy === null && s.draft === null"
            + " && (s.run.mask === 'none' || s.stats !== null)"
            + " && m.shown().row !== null");
    return this;
  }

  /** Waits for a condition on the page's state {@code s}; {@code m} has what its modules export. */
  public void until(String what, String condition) {
    await(what, () -> Boolean.TRUE.equals(script("return " + condition)));
  }

  public void await(String what, BooleanSupplier condition) {
    long end = System.nanoTime() + PATIENCE.toNanos();
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() > end) {
        throw new AssertionError("never: " + what);
      }
      try {
        Thread.sleep(25);
      } catch (InterruptedException e) {
        throw new IllegalStateException(e);
      }
    }
  }

  /**
   * Runs a script with the page's state as {@code s}, what its modules for state, selection and
   * tiles export as {@code m}, arguments as a. What the state was then is drawn when this returns:
   * a change is drawn in the next frame, and what that changes in turn in the one after.
   */
  public @Nullable Object script(String body, Object... arguments) {
    Object result =
        driver.executeAsyncScript(
            """
            const a = [...arguments], done = a.pop();
            Promise.all([import('/page/state.js'), import('/page/selection.js'), import('/page/tiles.js')]).then(async modules => {
              const m = Object.assign({}, ...modules), s = m.state, frame = () => new Promise(requestAnimationFrame);
              const value = await (async () => { %s })();
              await frame();
              await frame();
              return value;
            }).then(value => done({value: value === undefined ? null : value}), error => done({error: String(error)}));
            """
                .formatted(body),
            arguments);
    Map<?, ?> answer = (Map<?, ?>) Objects.requireNonNull(result);
    assertEquals(null, answer.get("error"), body);
    return answer.get("value");
  }

  public long number(String expression) {
    return ((Number) Objects.requireNonNull(script("return " + expression))).longValue();
  }

  /** A list of numbers. */
  public List<Number> numbers(String body) {
    List<Number> numbers = new ArrayList<>();
    for (Object each : (List<?>) Objects.requireNonNull(script(body))) {
      numbers.add((Number) Objects.requireNonNull(each));
    }
    return numbers;
  }

  public String words(String expression) {
    return String.valueOf(script("return " + expression));
  }

  public double fraction(String expression) {
    return ((Number) Objects.requireNonNull(script("return " + expression))).doubleValue();
  }

  /** A property of an element, as text. */
  public String property(String selector, String name) {
    return String.valueOf(find(selector).getDomProperty(name));
  }

  public String text(String selector) {
    return find(selector).getText();
  }

  public WebElement find(String selector) {
    return driver.findElement(By.cssSelector(selector));
  }

  public List<WebElement> all(String selector) {
    return driver.findElements(By.cssSelector(selector));
  }

  /** Clicks the button with these words, or this label. */
  public void click(String words) {
    Object button = // in the page: asking it of each button over the wire takes seconds
        driver.executeScript(
            """
            const found = [...document.querySelectorAll('button, summary, a, [role=tab]')].find(e =>
              e.checkVisibility({visibilityProperty: true})
                && (e.innerText.trim() === arguments[0] || e.getAttribute('aria-label') === arguments[0]));
            found?.scrollIntoView({block: 'center'});
            return found;
            """,
            words);
    if (!(button instanceof WebElement element)) {
      throw new AssertionError("no button " + words);
    }
    element.click();
  }

  public void keys(CharSequence... keys) {
    new Actions(driver).sendKeys(keys).perform();
  }

  public void shifted(Keys key) {
    new Actions(driver).keyDown(Keys.SHIFT).sendKeys(key).keyUp(Keys.SHIFT).perform();
  }

  /** What the console said since the last time it was asked, but for what is only told. */
  public List<String> complaints() {
    return driver.manage().logs().get(LogType.BROWSER).getAll().stream()
        .filter(entry -> entry.getLevel().intValue() >= Level.WARNING.intValue())
        .map(LogEntry::getMessage)
        .filter(message -> !message.contains("willReadFrequently")) // the test reads pixels
        .toList();
  }

  /** Addresses asked for since the last time. */
  public List<String> requests() {
    return driver.manage().logs().get(LogType.PERFORMANCE).getAll().stream()
        .map(LogEntry::getMessage)
        .filter(message -> message.contains("\"Network.requestWillBeSent\""))
        .map(
            message -> message.replaceFirst("(?s).*\"request\":\\{.*?\"url\":\"([^\"]*)\".*", "$1"))
        .toList();
  }

  public byte[] screenshot() {
    return driver.getScreenshotAs(OutputType.BYTES);
  }

  @Override
  public void close() {
    driver.quit();
  }
}
