package dev.loupe.corpus;

import java.io.Serializable;
import java.math.BigDecimal;
import java.math.MathContext;
import java.util.Arrays;

/**
 * What becomes a {@link Quantiles}, without keeping the values. Whatever the order of values and
 * merges, it comes to the same bits: sums are exact, and what is kept for quantiles is a function
 * of the values alone.
 *
 * <p>Up to {@link #EXACT} different values are counted each. Beyond, they are counted by the upper
 * bits of their floating-point form, which cut an octave in 256.
 */
final class Summary implements Serializable {
  private static final long serialVersionUID = 1;
  static final int EXACT = 1024;
  private static final int LOWER_BITS = 52 - 8;

  private long count;
  private double min = Double.POSITIVE_INFINITY;
  private double max = Double.NEGATIVE_INFINITY;
  private final ExactSum sum = new ExactSum();
  private final ExactSum squares = new ExactSum();

  private boolean coarse;
  private long[] keys = new long[4]; // ascending
  private long[] counts = new long[4];
  private int size;

  /** Adds a value, which is finite. */
  void add(double number) {
    if (!Double.isFinite(number)) {
      throw new IllegalArgumentException("a value is " + number);
    }
    double value = number + 0.0; // -0 is 0
    count++;
    min = Math.min(min, value);
    max = Math.max(max, value);
    sum.add(value);
    squares.addSquare(value);
    long key = sortable(Double.doubleToLongBits(value));
    count(coarse ? key >> LOWER_BITS : key, 1);
  }

  void merge(Summary other) {
    count += other.count;
    min = Math.min(min, other.min);
    max = Math.max(max, other.max);
    sum.add(other.sum);
    squares.add(other.squares);
    if (other.coarse) {
      coarsen();
    }
    for (int i = 0; i < other.size; i++) {
      long key = other.keys[i];
      count(coarse && !other.coarse ? key >> LOWER_BITS : key, other.counts[i]);
    }
  }

  /** Bits of a double as a number that is in the double's order, and back. */
  private static long sortable(long bits) {
    return bits ^ (bits >> 63 & Long.MAX_VALUE);
  }

  private void count(long key, long times) {
    int at = Arrays.binarySearch(keys, 0, size, key);
    if (at >= 0) {
      counts[at] += times;
      return;
    }
    if (!coarse && size == EXACT) {
      coarsen();
      count(key >> LOWER_BITS, times);
      return;
    }
    if (size == keys.length) {
      keys = Arrays.copyOf(keys, 2 * size);
      counts = Arrays.copyOf(counts, 2 * size);
    }
    int place = -at - 1;
    System.arraycopy(keys, place, keys, place + 1, size - place);
    System.arraycopy(counts, place, counts, place + 1, size - place);
    keys[place] = key;
    counts[place] = times;
    size++;
  }

  private void coarsen() {
    if (coarse) {
      return;
    }
    coarse = true;
    int before = size;
    size = 0;
    for (int i = 0; i < before; i++) {
      long key = keys[i] >> LOWER_BITS;
      if (size > 0 && keys[size - 1] == key) {
        counts[size - 1] += counts[i];
      } else {
        keys[size] = key;
        counts[size] = counts[i];
        size++;
      }
    }
  }

  boolean isEmpty() {
    return count == 0;
  }

  Quantiles distribution() {
    if (count == 0) {
      throw new IllegalStateException("no values");
    }
    BigDecimal n = BigDecimal.valueOf(count);
    BigDecimal total = sum.value();
    BigDecimal variance =
        squares
            .value()
            .subtract(total.multiply(total).divide(n, MathContext.DECIMAL128))
            .divide(n, MathContext.DECIMAL128)
            .max(BigDecimal.ZERO);
    return new Quantiles(
        count,
        total.divide(n, MathContext.DECIMAL128).doubleValue(),
        min == max ? 0 : variance.sqrt(MathContext.DECIMAL128).doubleValue(),
        min,
        quantile(5),
        quantile(25),
        quantile(50),
        quantile(75),
        quantile(95),
        max);
  }

  private double quantile(int percent) {
    long rank = count / 100 * percent + (count % 100 * percent + 99) / 100;
    int at = 0;
    for (long below = counts[0]; below < rank; below += counts[at]) {
      at++;
    }
    if (!coarse) {
      return Double.longBitsToDouble(sortable(keys[at]));
    }
    long middle = keys[at] << LOWER_BITS | 1L << (LOWER_BITS - 1);
    return Math.clamp(Double.longBitsToDouble(sortable(middle)), min, max);
  }
}
