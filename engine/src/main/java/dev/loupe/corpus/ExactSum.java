package dev.loupe.corpus;

import java.io.Serializable;
import java.math.BigDecimal;

/**
 * A sum that does not depend on the order of its terms: in fixed point, exact but for what a term
 * has below 2^-62.
 */
final class ExactSum implements Serializable {
  private static final long serialVersionUID = 1;
  private static final int BITS = 62;
  private static final double ONE = 0x1p62;

  private long whole;
  private long part; // of 2^62, less than all of it
  private BigDecimal large = BigDecimal.ZERO; // terms that could overflow the others

  void add(double term) {
    if (Math.abs(term) < 0x1p31) {
      double floor = Math.floor(term);
      add((long) floor, (long) ((term - floor) * ONE));
    } else {
      large = large.add(new BigDecimal(term));
    }
  }

  void addSquare(double root) {
    if (Math.abs(root) < 0x1p15) {
      double square = root * root;
      add(square);
      add(Math.fma(root, root, -square)); // what rounding took
    } else {
      large = large.add(new BigDecimal(root).pow(2));
    }
  }

  void add(ExactSum other) {
    add(other.whole, other.part);
    large = large.add(other.large);
  }

  private void add(long whole, long part) {
    long sum = this.part + part;
    this.whole = Math.addExact(this.whole, whole + (sum >> BITS));
    this.part = sum & ((1L << BITS) - 1);
  }

  BigDecimal value() {
    return BigDecimal.valueOf(part)
        .multiply(new BigDecimal(1 / ONE))
        .add(BigDecimal.valueOf(whole))
        .add(large);
  }
}
