package dev.loupe.cli.run;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.cli.Ran;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What a terminal shows of a text. */
class RunPrinterTest {
  @ParameterizedTest
  @CsvSource({"a\\tb, a\\tb", "'\\e[2J', ␛[2J", "'\\r', ␍", "'\\x7f\\x9b', ␡␡", "é🎭, é🎭"})
  void aModelCannotCommandTheTerminal(String text, String shown) {
    String raw =
        text.replace("\\e", "\u001b")
            .replace("\\r", "\r")
            .replace("\\t", "\t")
            .replace("\\x7f", "\u007f")
            .replace("\\x9b", "\u009b");
    assertEquals(shown.replace("\\t", "\t"), RunPrinter.harmless(raw));
  }

  @Test
  void aPipeGetsControlCharactersAndATerminalDoesNot() {
    String prompt = "\u0007\u0007\u0007\u0007\u0007\u0007\u0007\u0007";
    Object[] args = {
      "generate", prompt, "-n", 4, "--temperature", 5, "--top-k", 0, "--top-p", 1, "--seed", 11
    };
    String piped = Ran.loupe(args).well().out();
    String shown = Ran.onTerminal(args).well().out();
    assertEquals(RunPrinter.harmless(piped), shown.stripTrailing() + trailing(piped));
  }

  private static String trailing(String text) {
    return text.substring(text.stripTrailing().length());
  }
}
