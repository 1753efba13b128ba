package dev.loupe.cuda.ptx;

import java.math.BigDecimal;

/** A sum of doubles without rounding, of which an f32 is made once. */
final class ExactSum {
  private double sum;
  private BigDecimal lost = BigDecimal.ZERO; // what the sum is short of

  ExactSum(double first) {
    sum = first;
  }

  void add(double addend) {
    double next = sum + addend;
    double of = next - sum;
    double error = sum - (next - of) + (addend - of); // exact (Knuth's two-sum)
    if (error != 0 && Double.isFinite(next)) {
      lost = lost.add(new BigDecimal(error));
    }
    sum = next;
  }

  /** The sum without the bits that an f32 has no room for. */
  float cut() {
    float nearest = (float) sum;
    if (!Double.isFinite(sum) || (nearest == sum && lost.signum() == 0)) {
      return nearest;
    }
    BigDecimal exact = new BigDecimal(sum).add(lost);
    float near = exact.floatValue();
    boolean beyond =
        Float.isInfinite(near) || new BigDecimal(near).abs().compareTo(exact.abs()) > 0;
    return beyond ? Math.nextAfter(near, 0) : near;
  }
}
