package dev.loupe.export.figure;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.math.BigDecimal;
import java.math.MathContext;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class LogAxisTest {
  private static List<Double> ticks(double from, double to) {
    return new LogAxis(from, to, 0, 100)
        .ticks().stream()
            .map(t -> new BigDecimal(t).round(new MathContext(9)).doubleValue())
            .toList();
  }

  @Test
  void theMoreDecadesTheFewerTicks() {
    assertEquals(List.of(1.0, 1.5, 2.0, 3.0, 4.0, 5.0), ticks(1, 5));
    assertEquals(List.of(0.5, 1.0, 2.0, 5.0, 10.0, 20.0), ticks(0.5, 20));
    assertEquals(List.of(1.0, 10.0, 100.0, 1000.0), ticks(0.5, 2000));
    assertEquals(List.of(0.001, 0.002, 0.005, 0.01), ticks(0.001, 0.01)); // both ends
  }

  @Test
  void placesAreLogarithmic() {
    LogAxis axis = new LogAxis(1, 100, 10, 210);
    assertEquals(10, axis.at(1), 1e-9);
    assertEquals(110, axis.at(10), 1e-9);
    assertEquals(210, axis.at(100), 1e-9);
    assertEquals(75, new LogAxis(1, 16, 100, 0).at(2), 1e-9); // upwards
  }

  @ParameterizedTest
  @CsvSource({
    "3, 40, 1.2, 2, 50", // 2.5 to 48
    "1, 10, 1, 1, 10",
    "1.1, 9, 1.2, 0.5, 20", // 0.92 to 10.8
    "0.06, 0.06, 1.2, 0.05, 0.1", // one value alone
    "700, 1e6, 1.2, 500, 2e6"
  })
  void goesFromRoundToRound(double least, double most, double air, double from, double to) {
    LogAxis axis = LogAxis.around(least, most, air, 0, 1);
    assertEquals(from, axis.from(), from * 1e-12);
    assertEquals(to, axis.to(), to * 1e-12);
  }

  @Test
  void hasNoZeroAndNoEnd() {
    assertThrows(IllegalArgumentException.class, () -> new LogAxis(0, 1, 0, 1));
    assertThrows(IllegalArgumentException.class, () -> new LogAxis(1, 1, 0, 1));
    double none = Double.NaN;
    double endless = Double.POSITIVE_INFINITY;
    assertThrows(IllegalArgumentException.class, () -> new LogAxis(1, endless, 0, 1));
    assertThrows(IllegalArgumentException.class, () -> new LogAxis(none, 1, 0, 1));
  }
}
