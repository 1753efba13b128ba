package dev.loupe.ops.cpu;

/**
 * The error function to about 1e-12: a Taylor step of degree 4 from the nearest of a table of nodes
 * 1/64 apart. The nodes are summed from the series erf(x) = 2/sqrt(pi) exp(-x^2) sum 2^n x^(2n+1) /
 * (2n+1)!! (Abramowitz and Stegun 7.1.6), whose terms are all positive, so that nothing cancels.
 */
final class Erf {
  private static final int PER_UNIT = 64;
  private static final int LIMIT = 6; // 1 - erf(6) is 2e-17
  private static final double[] NODES = new double[LIMIT * PER_UNIT + 1];
  private static final double[] SLOPES = new double[NODES.length];

  static {
    for (int i = 0; i < NODES.length; i++) {
      double x = (double) i / PER_UNIT;
      SLOPES[i] = 2 / Math.sqrt(Math.PI) * StrictMath.exp(-x * x);
      NODES[i] = SLOPES[i] * series(x);
    }
  }

  private Erf() {}

  static double of(double x) {
    double a = Math.abs(x);
    if (a >= LIMIT) {
      return Math.signum(x);
    }
    if (Double.isNaN(x)) {
      return x;
    }
    int node = (int) (a * PER_UNIT + 0.5);
    double c = (double) node / PER_UNIT;
    double h = a - c;
    // erf'' = -2c erf', erf''' = (4c^2 - 2) erf', erf'''' = (12c - 8c^3) erf'
    double step = 1 - h * (c - h * ((2 * c * c - 1) / 3 + h * (3 * c - 2 * c * c * c) / 6));
    return Math.copySign(NODES[node] + SLOPES[node] * h * step, x);
  }

  private static double series(double x) {
    double term = x;
    double sum = x;
    for (int n = 1; term > sum * 1e-18; n++) {
      term *= 2 * x * x / (2 * n + 1);
      sum += term;
    }
    return sum;
  }
}
