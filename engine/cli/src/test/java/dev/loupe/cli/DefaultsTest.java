package dev.loupe.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Checkout;
import dev.loupe.cli.terminal.ExitCode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Options whose values come from the environment or from a file. */
class DefaultsTest {
  private static final Map<String, String> NOTHING = Map.of();

  @TempDir Path folder;
  private Path file;

  @BeforeEach
  void name() {
    file = folder.resolve("loupe.properties");
  }

  private Ran loupe(Map<String, String> environment, Object... args) {
    return Ran.with(() -> Defaults.of(environment::get, file), args);
  }

  private static String seed(Ran ran) {
    return ran.well().json().getFirst().getAsJsonObject("generation").get("seed").getAsString();
  }

  private static final Object[] GENERATE = {"generate", "x", "-n", 1, "--json"};

  @Test
  void theNearestCounts() throws IOException {
    Map<String, String> environment = Map.of("LOUPE_SEED", "3");
    assertEquals("3", seed(loupe(environment, GENERATE)));
    Files.writeString(file, "seed = 4\n");
    assertEquals("4", seed(loupe(NOTHING, GENERATE)));
    Files.writeString(
        file, "seed = 4\nloupe.generate.seed = 5\nloupe.weights.make-random.seed = 6\n");
    assertEquals("5", seed(loupe(NOTHING, GENERATE)));
    assertEquals("3", seed(loupe(environment, GENERATE)));
    assertEquals("7", seed(loupe(environment, "generate", "x", "-n", 1, "--json", "--seed", 7)));
    assertEquals("8", seed(loupe(environment, "generate", "x", "-n", 1, "--json", "--seed=8")));
  }

  @Test
  void optionsOfTheModelAndFlagsHaveDefaultsToo() {
    Ran ran =
        loupe(
            Map.of("LOUPE_THREADS", "1", "LOUPE_BACKEND", "cpu", "LOUPE_QUIET", "true"),
            "attention",
            "a b",
            "--top",
            1);
    assertEquals("", ran.well().err());
    String said = loupe(Map.of("LOUPE_THREADS", "1"), "generate", "x", "-n", 1).well().err();
    assertTrue(said.contains("1 thread;"), said);
    assertEquals("", loupe(Map.of("LOUPE_QUIET", "true"), "attention", "a b", "-q").well().err());
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "LOUPE_THREADS | two   | '--threads'  | 'two' is not a whole number",
        "LOUPE_THREADS | -3    | --threads    | -3 threads",
        "LOUPE_BACKEND | tpu   | '--backend'  | 'tpu' is not auto, cpu or cuda",
        "LOUPE_TOP_P   | 2     | --top-p      | top-p 2.0",
        "LOUPE_QUIET   | often | '--quiet'    | often",
      })
  void aBadValueIsNamedWithItsSource(String name, String value, String option, String what) {
    loupe(Map.of(name, value), "generate", "x")
        .refused(ExitCode.BAD_USAGE, option.replace("'", ""), what, "from " + name);
  }

  @Test
  void aBadValueOfTheFileIsNamedWithIt() throws IOException {
    Files.writeString(file, "loupe.generate.threads = two\n");
    loupe(NOTHING, "generate", "x")
        .refused(ExitCode.BAD_USAGE, "'two'", "loupe.generate.threads in " + file);
  }

  @Test
  void aBadValueThatIsNotUsedDoesNoHarm() {
    Map<String, String> environment = Map.of("LOUPE_THREADS", "two");
    loupe(environment, "generate", "x", "-n", 1, "--threads", 1).well();
    loupe(environment, "generate", "--help").well();
    loupe(environment, "weights", "inspect", Checkout.TEST_DATA.resolve("shakespeare")).well();
    loupe(environment, "completion").well();
  }

  @Test
  void aFileWithoutSenseIsRefused() throws IOException {
    Files.writeString(file, "thread = 2\n");
    loupe(NOTHING, "doctor").refused(ExitCode.BAD_USAGE, file, "no option --thread");
    Files.writeString(file, "loupe.serve.temperature = 2\n");
    loupe(NOTHING, "doctor")
        .refused(ExitCode.BAD_USAGE, file, "no option --temperature of loupe.serve");
    Files.writeString(file, "seed = \\u00\n");
    loupe(NOTHING, "doctor").refused(ExitCode.BAD_USAGE, file);
    Files.delete(file);
    Files.createDirectory(file);
    loupe(NOTHING, "doctor").refused(ExitCode.BAD_USAGE, file);
  }
}
