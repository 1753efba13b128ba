package dev.loupe.cuda.kernels;

/**
 * How {@link SampleKernels} chooses a token, applied in this order, as in Hugging Face's generate:
 * repetition penalty, temperature, top-k, top-p, min-p, draw.
 *
 * @param temperature divides the logits; 0 takes the most likely token
 * @param topK keeps the k most likely tokens and those that tie with the last; 0 keeps all
 * @param topP keeps the most likely tokens up to and with the one that brings their probability to
 *     p (Holtzman et al., arXiv 1904.09751); 1 keeps all, 0 takes the most likely token
 * @param minP drops tokens less likely than p times the most likely; 0 keeps all
 * @param repetitionPenalty divides the positive and multiplies the negative logits of seen tokens
 *     (Keskar et al., arXiv 1909.05858); 1 changes nothing
 * @param seed the same seed draws the same tokens
 */
public record SampleOptions(
    float temperature, int topK, double topP, double minP, float repetitionPenalty, long seed) {
  /** Ints that {@link #words} takes. */
  public static final int INTS = 8;

  public SampleOptions {
    if (!(temperature >= 0 && temperature < 1e6f)) {
      throw new IllegalArgumentException("temperature %s: not 0 or more".formatted(temperature));
    }
    if (topK < 0) {
      throw new IllegalArgumentException("top-k %d: not 0 or more".formatted(topK));
    }
    if (!(topP >= 0 && topP <= 1)) {
      throw new IllegalArgumentException("top-p %s: not between 0 and 1".formatted(topP));
    }
    if (!(minP >= 0 && minP <= 1)) {
      throw new IllegalArgumentException("min-p %s: not between 0 and 1".formatted(minP));
    }
    if (!(repetitionPenalty > 0 && repetitionPenalty < 1e6f)) {
      throw new IllegalArgumentException(
          "repetition penalty %s: not positive".formatted(repetitionPenalty));
    }
  }

  /** Whether the most likely token is taken: temperature or top-p is 0. */
  public boolean isGreedy() {
    return temperature == 0 || topP == 0;
  }

  /**
   * What the kernel reads, as ints of a little-endian machine: {@code struct Options} in sample.cu.
   */
  public int[] words() {
    long p = Double.doubleToRawLongBits(topP);
    return new int[] {
      Float.floatToRawIntBits(isGreedy() ? 0 : temperature),
      topK,
      (int) p,
      (int) (p >>> Integer.SIZE),
      Float.floatToRawIntBits(leastScore()),
      Float.floatToRawIntBits(repetitionPenalty),
      (int) seed,
      (int) (seed >>> Integer.SIZE)
    };
  }

  /** The least float from log(minP) on. */
  private float leastScore() {
    double log = Math.log(minP);
    float rounded = (float) log;
    return rounded < log ? Math.nextUp(rounded) : rounded;
  }
}
