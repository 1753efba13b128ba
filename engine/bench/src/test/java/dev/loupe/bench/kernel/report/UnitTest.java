package dev.loupe.bench.kernel.report;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class UnitTest {
  @ParameterizedTest
  @CsvSource({
    "0.0431, 0.0431 us", "0.99951, 1.00 us", "1, 1.00 us", "9.994, 9.99 us", "9.996, 10.0 us",
    "99.96, 100 us", "999.4, 999 us", "999.5, 1.00 ms", "999.95, 1.00 ms", "1000, 1.00 ms",
    "43120, 43.1 ms", "999499, 999 ms", "999500, 1.00 s", "1e6, 1.00 s", "1.2345e9, 1235 s"
  })
  void timesHaveThreeDigits(double microseconds, String text) {
    assertEquals(text, Unit.timeOf(microseconds));
  }

  @ParameterizedTest
  @CsvSource({
    "0, 0",
    "4312.4, 4312",
    "4312.6, 4313",
    "431.5, 432",
    "4.315, 4.32",
    "NaN, -",
    "Infinity, -",
    "0.000123456, 0.000123"
  })
  void digits(double value, String text) {
    assertEquals(text, Unit.digits(value));
  }

  @ParameterizedTest
  @CsvSource({
    "0, 0.0%",
    "0.0004, <0.1%",
    "0.0005, 0.1%",
    "0.0994, 9.9%",
    "0.0995, 10%",
    "0.664, 66%",
    "1.5, 150%",
    "NaN, -"
  })
  void percent(double part, String text) {
    assertEquals(text, Unit.percent(part));
  }

  @ParameterizedTest
  @CsvSource({"9.99e12, 9990 GFLOP/s", "1e13, 10.0 TFLOP/s", "2.5e8, 0.250 GFLOP/s"})
  void operations(double most, String text) {
    assertEquals(text, Unit.operations(most).with(most));
  }

  @Test
  void roundNumbersHaveNoZerosBehindThePoint() {
    assertEquals("10 ms", Unit.roundTime(10_000));
    assertEquals("0.5 us", Unit.roundTime(0.5));
    assertEquals("1 ms", Unit.roundTime(Math.nextDown(1000.0)));
    assertEquals("1000", Unit.round(1000));
    assertEquals("0.001", Unit.round(0.001));
  }
}
