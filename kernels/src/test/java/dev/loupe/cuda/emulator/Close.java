package dev.loupe.cuda.emulator;

import static org.junit.jupiter.api.Assertions.fail;

/** Compares what a kernel computed with a reference in double precision. */
public final class Close {
  private Close() {}

  /**
   * Passes if {@code |actual - expected| <= absolute + relative * |expected|} at every place.
   *
   * @param what named in the message, with shapes and seed
   * @throws AssertionError at a NaN or infinity on either side, or with the worst place
   */
  public static void check(
      String what, double[] expected, float[] actual, double absolute, double relative) {
    double[] tolerance = new double[expected.length];
    for (int i = 0; i < expected.length; i++) {
      tolerance[i] = absolute + relative * Math.abs(expected[i]);
    }
    check(what, expected, actual, tolerance);
  }

  /** Passes if {@code |actual - expected| <= tolerance} at every place, each with its own. */
  public static void check(String what, double[] expected, float[] actual, double[] tolerance) {
    if (actual.length != expected.length || tolerance.length != expected.length) {
      fail(
          "%s: %d values and %d tolerances for %d expected"
              .formatted(what, actual.length, tolerance.length, expected.length));
    }
    int worst = -1;
    double worstRatio = -1;
    for (int i = 0; i < expected.length; i++) {
      if (!Double.isFinite(expected[i]) || !Float.isFinite(actual[i])) {
        fail("%s: [%d] is %s, expected %s".formatted(what, i, actual[i], expected[i]));
      }
      double error = Math.abs(actual[i] - expected[i]);
      double ratio = error == 0 ? 0 : error / tolerance[i]; // infinite where none is allowed
      if (!(ratio <= worstRatio)) { // a NaN tolerance is the worst
        worstRatio = ratio;
        worst = i;
      }
    }
    if (!(worstRatio <= 1)) {
      fail(
          "%s: worst error / tolerance %.3g at [%d]: %s, expected %s within %.3g"
              .formatted(
                  what, worstRatio, worst, actual[worst], expected[worst], tolerance[worst]));
    }
    System.out.printf("%s: worst error / tolerance %.3g%n", what, worstRatio);
  }
}
