package dev.loupe.cuda.measure;

import java.util.Arrays;
import java.util.Locale;
import java.util.function.DoubleSupplier;

/** Median, tenth and ninetieth percentile of what was measured several times. */
record Spread(double median, double p10, double p90) {
  /** Measures {@code warmUp + samples} times; the first ones do not count. */
  static Spread of(int warmUp, int samples, DoubleSupplier measure) {
    double[] sorted = new double[samples];
    for (int i = -warmUp; i < samples; i++) {
      double time = measure.getAsDouble();
      if (i >= 0) {
        sorted[i] = time;
      }
    }
    Arrays.sort(sorted);
    return new Spread(rank(sorted, 0.5), rank(sorted, 0.1), rank(sorted, 0.9));
  }

  private static double rank(double[] sorted, double quantile) {
    return sorted[(int) Math.round(quantile * (sorted.length - 1))];
  }

  /** The rate that goes with these times: {@code amount / time}, so that p10 is the slow end. */
  Spread rate(double amount) {
    return new Spread(amount / median, amount / p90, amount / p10);
  }

  String json() {
    return String.format(
        Locale.ROOT, "{\"median\": %.4g, \"p10\": %.4g, \"p90\": %.4g}", median, p10, p90);
  }
}
