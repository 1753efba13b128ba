package dev.loupe;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Locale;

/** The one comparator of numbers: no NaN, no infinity, and the worst error against a tolerance. */
public final class Close {
  private Close() {}

  /** Every actual number is within {@code tolerance} of the expected one, absolutely. */
  public static void assertClose(String what, double[] expected, float[] actual, double tolerance) {
    assertEquals(expected.length, actual.length, what + ": number of values");
    double worst = 0;
    int at = 0;
    for (int i = 0; i < expected.length; i++) {
      assertTrue(
          Double.isFinite(expected[i]) && Float.isFinite(actual[i]),
          "%s[%d]: expected %s, got %s".formatted(what, i, expected[i], actual[i]));
      double error = Math.abs(expected[i] - actual[i]);
      if (error > worst) {
        worst = error;
        at = i;
      }
    }
    String report =
        String.format(
            Locale.ROOT, "%s: worst error / tolerance = %.2g / %.2g", what, worst, tolerance);
    System.out.println(report);
    if (worst > tolerance) {
      throw new AssertionError(
          "%s at [%d]: expected %s, got %s".formatted(report, at, expected[at], actual[at]));
    }
  }

  /** The same for expected values that are stored as floats. */
  public static void assertClose(String what, float[] expected, float[] actual, double tolerance) {
    double[] wide = new double[expected.length];
    for (int i = 0; i < wide.length; i++) {
      wide[i] = expected[i];
    }
    assertClose(what, wide, actual, tolerance);
  }
}
