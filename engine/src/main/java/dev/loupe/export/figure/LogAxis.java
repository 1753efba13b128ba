package dev.loupe.export.figure;

import java.util.ArrayList;
import java.util.List;

/**
 * A log scale.
 *
 * @param from value at its start, above 0
 * @param to value at its end, more than {@code from}
 * @param start where it starts, in pixels
 * @param end where it ends; less than {@code start} if it goes up
 */
record LogAxis(double from, double to, double start, double end) {
  private static final double[] FEW = {1};
  private static final double[] SOME = {1, 2, 5};
  private static final double[] MANY = {1, 1.5, 2, 3, 4, 5, 7};

  LogAxis {
    if (!(from > 0 && to > from && Double.isFinite(to))) {
      throw new IllegalArgumentException("a log scale from %s to %s".formatted(from, to));
    }
  }

  /** From a round value below {@code least} to one above {@code most}, with some air at both. */
  static LogAxis around(double least, double most, double air, double start, double end) {
    return new LogAxis(round(least / air, true), round(most * air, false), start, end);
  }

  private static double round(double value, boolean down) {
    double decade = Math.pow(10, Math.floor(Math.log10(value)));
    double best = down ? decade : 10 * decade;
    for (double step : SOME) {
      double round = step * decade;
      if (down && round <= value) {
        best = round;
      } else if (!down && round >= value) {
        return round;
      }
    }
    return best;
  }

  double at(double value) {
    return start + (end - start) * Math.log(value / from) / Math.log(to / from);
  }

  double decades() {
    return Math.log10(to / from);
  }

  /** Round values on it, the fewer the more decades it has. */
  List<Double> ticks() {
    double[] steps = decades() > 2.2 ? FEW : decades() > 0.8 ? SOME : MANY;
    List<Double> ticks = new ArrayList<>();
    for (int power = (int) Math.floor(Math.log10(from)); ticks.size() < 40; power++) {
      for (double step : steps) {
        double value = step * Math.pow(10, power);
        if (value > to * 1.000001) {
          return ticks;
        }
        if (value >= from * 0.999999) {
          ticks.add(value);
        }
      }
    }
    return ticks;
  }
}
