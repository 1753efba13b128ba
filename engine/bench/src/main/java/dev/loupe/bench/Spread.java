package dev.loupe.bench;

import java.util.List;

/**
 * The middle of some measurements and how far they lie apart.
 *
 * @param p10 a tenth of them are less; between two, on the straight line that joins them
 * @param p90 a tenth of them are more
 */
public record Spread(double median, double p10, double p90) {

  /**
   * The spread of measurements.
   *
   * @param values at least one, in any order
   */
  public static Spread of(List<Double> values) {
    double[] sorted = values.stream().mapToDouble(Double::doubleValue).sorted().toArray();
    return new Spread(quantile(sorted, 0.5), quantile(sorted, 0.1), quantile(sorted, 0.9));
  }

  /** Whether some value lies in both, from p10 to p90. */
  public boolean overlaps(Spread other) {
    return p10 <= other.p90 && other.p10 <= p90;
  }

  private static double quantile(double[] sorted, double q) {
    double at = q * (sorted.length - 1);
    int below = (int) at;
    int above = Math.min(below + 1, sorted.length - 1);
    return sorted[below] + (at - below) * (sorted[above] - sorted[below]);
  }
}
