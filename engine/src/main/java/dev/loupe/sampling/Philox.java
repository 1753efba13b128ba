package dev.loupe.sampling;

/**
 * Philox4x32-10, a counter-based random generator: a number is a pure function of a 64-bit key and
 * a 128-bit counter, so that a GPU can draw the very same ones in any order (Salmon, Moraes, Dror
 * and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011).
 */
final class Philox {
  private static final int ROUNDS = 10;
  private static final int MULTIPLIER_0 = 0xD2511F53;
  private static final int MULTIPLIER_1 = 0xCD9E8D57;
  private static final int WEYL_0 = 0x9E3779B9;
  private static final int WEYL_1 = 0xBB67AE85;

  private Philox() {}

  /** Writes the four words of one counter value to {@code out}. */
  static void block(long key, int c0, int c1, int c2, int c3, int[] out) {
    int k0 = (int) key;
    int k1 = (int) (key >>> 32);
    for (int round = 0; round < ROUNDS; round++) {
      long p0 = Integer.toUnsignedLong(MULTIPLIER_0) * Integer.toUnsignedLong(c0);
      long p1 = Integer.toUnsignedLong(MULTIPLIER_1) * Integer.toUnsignedLong(c2);
      c0 = (int) (p1 >>> 32) ^ c1 ^ k0;
      c1 = (int) p1;
      c2 = (int) (p0 >>> 32) ^ c3 ^ k1;
      c3 = (int) p0;
      k0 += WEYL_0;
      k1 += WEYL_1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
  }
}
