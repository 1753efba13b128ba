package dev.loupe.cuda.emulator;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Objects;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class CloseTest {
  private static String refusal(double expected, float actual, double absolute, double relative) {
    double[] one = {1, expected};
    return Objects.requireNonNull(
        assertThrows(
                AssertionError.class,
                () -> Close.check("it", one, new float[] {1, actual}, absolute, relative))
            .getMessage());
  }

  @Test
  void passesWithinTheTolerance() {
    double[] expected = {1, -200, 0};
    float[] actual = {1.0009f, -200.19f, 0};
    assertDoesNotThrow(() -> Close.check("it", expected, actual, 0, 1e-3));
    assertDoesNotThrow(() -> Close.check("none", new double[0], new float[0], 0, 0));
  }

  @Test
  void namesTheWorstPlace() {
    String message = refusal(100, 101, 0.5, 0);
    assertTrue(message.contains("2.00 at [1]: 101.0, expected 100.0 within 0.5"), message);
    assertTrue(refusal(0, 1e-30f, 0, 1).contains("Infinity at [1]"), "no tolerance at zero");
    assertTrue(refusal(1, 1.5f, Double.NaN, 0).contains("NaN at [1]"), "no tolerance at all");
  }

  @ParameterizedTest
  @ValueSource(doubles = {Double.NaN, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY})
  void refusesWhatIsNotFiniteOnEitherSide(double value) {
    assertTrue(refusal(1, (float) value, 1e9, 1e9).contains("[1] is " + (float) value));
    assertTrue(refusal(value, 1, 1e9, 1e9).contains("expected " + value));
    assertTrue(refusal(value, (float) value, 1e9, 1e9).contains("[1]"), "equal is not enough");
  }

  @Test
  void refusesOtherLengths() {
    assertThrows(
        AssertionError.class,
        () -> Close.check("it", new double[2], new float[1], 1, 1),
        "a value is missing");
  }
}
