package dev.loupe.bench.kernel.report;

import java.math.BigDecimal;
import java.math.MathContext;
import java.math.RoundingMode;

/**
 * What quantities are said in.
 *
 * @param name as it stands beside a number
 * @param size of one, in the quantity's own measure
 */
record Unit(String name, double size) {
  static final Unit BYTES = new Unit("GB/s", 1e9);

  /** One in which so many microseconds are not less than 1 in three digits, if there is one. */
  static Unit time(double microseconds) {
    if (microseconds >= 0.9995e6) {
      return new Unit("s", 1e6);
    }
    return microseconds >= 0.9995e3 ? new Unit("ms", 1e3) : new Unit("us", 1);
  }

  /** One for operations a second, the most of which are so many. */
  static Unit operations(double most) {
    return most >= 1e13 ? new Unit("TFLOP/s", 1e12) : new Unit("GFLOP/s", 1e9);
  }

  /** {@code 4.31}. */
  String number(double value) {
    return digits(value / size);
  }

  /** {@code 4.31 ms}. */
  String with(double value) {
    return number(value) + " " + name;
  }

  /** {@code 4.31 ms} of so many microseconds. */
  static String timeOf(double microseconds) {
    return time(microseconds).with(microseconds);
  }

  /** Three digits, more before the point if there are: 0.0431, 4.31, 431, 4312. */
  static String digits(double value) {
    if (!Double.isFinite(value) || value == 0) {
      return value == 0 ? "0" : "-";
    }
    BigDecimal rounded = new BigDecimal(value).round(new MathContext(3, RoundingMode.HALF_UP));
    int before = rounded.precision() - rounded.scale();
    return new BigDecimal(value)
        .setScale(Math.max(0, 3 - before), RoundingMode.HALF_UP)
        .toPlainString();
  }

  /** A round number as it is: {@code 10}, {@code 0.5}. */
  static String round(double value) {
    BigDecimal rounded = new BigDecimal(value).round(new MathContext(3, RoundingMode.HALF_UP));
    return rounded.stripTrailingZeros().toPlainString();
  }

  /** {@code 10 ms} of a round number of microseconds. */
  static String roundTime(double microseconds) {
    Unit unit = time(microseconds);
    return round(microseconds / unit.size) + " " + unit.name;
  }

  /** {@code 4.31x}. */
  static String times(double ratio) {
    return digits(ratio) + "x";
  }

  /** {@code 4.3%}, of a part of 1; a dash for none. */
  static String percent(double part) {
    double percent = 100 * part;
    if (!Double.isFinite(percent)) {
      return "-";
    }
    if (percent > 0 && percent < 0.05) {
      return "<0.1%";
    }
    int decimals = percent < 9.95 ? 1 : 0;
    return BigDecimal.valueOf(percent).setScale(decimals, RoundingMode.HALF_UP).toPlainString()
        + "%";
  }
}
