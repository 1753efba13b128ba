package dev.loupe.cli.terminal;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** How wide a terminal is taken to be. */
class TerminalTest {
  @ParameterizedTest
  @CsvSource({"100, 100", "60, 60", "0, 80", "-5, 80", "5, 20", "x, 80", "'', 80", "99999, 1000"})
  void trustsTheTerminalsWidthWithinReason(String variable, int columns) {
    assertEquals(columns, Terminal.columns(variable));
  }

  @Test
  void takesEightyColumnsWhereNoneAreKnown() {
    assertEquals(80, Terminal.columns(null));
  }
}
