package dev.loupe.kernels.ptx;

/**
 * A sum of doubles without rounding, as a sum of doubles of which none has bits in common with
 * another (Shewchuk, "Adaptive precision floating-point arithmetic", 1997). Products of numbers of
 * 24 bits are exact in double; their sum may not be.
 */
final class ExactSum {
  private double[] parts; // growing in magnitude; zeros are left out
  private int size;
  private double special; // the sum where an addend is infinite or NaN

  ExactSum(double first) {
    parts = new double[8];
    add(first);
  }

  void add(double addend) {
    if (!Double.isFinite(addend)) {
      special += addend;
      return;
    }
    if (size == parts.length) {
      parts = java.util.Arrays.copyOf(parts, 2 * size);
    }
    double carry = addend;
    int kept = 0;
    for (int i = 0; i < size; i++) {
      double sum = carry + parts[i];
      double of = sum - carry;
      double lost = carry - (sum - of) + (parts[i] - of);
      if (lost != 0) {
        parts[kept++] = lost;
      }
      carry = sum;
    }
    if (carry != 0) {
      parts[kept++] = carry;
    }
    size = kept;
  }

  /** The sum without the bits that an f32 has no room for. */
  float cut() {
    if (special != 0 || Double.isNaN(special)) {
      return (float) special;
    }
    if (size == 0) {
      return 0;
    }
    double largest = parts[size - 1];
    float nearest = (float) largest;
    double rest = largest - nearest; // exact, or the infinity that is too far
    double next = size > 1 ? parts[size - 2] : 0;
    double beyond = rest != 0 ? rest : next; // of the nearest, by its sign
    boolean away = nearest > 0 ? beyond < 0 : beyond > 0;
    return away ? Math.nextAfter(nearest, 0) : nearest;
  }
}
