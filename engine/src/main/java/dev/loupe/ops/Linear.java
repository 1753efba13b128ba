package dev.loupe.ops;

/**
 * An affine map, Hugging Face's Conv1D: out = x . weight + bias.
 *
 * @param weight [in, out]
 * @param bias [1, out], f32
 */
public record Linear(Weight weight, Tensor bias) {
  public Linear {
    if (bias.cols() != weight.out()) {
      throw new IllegalArgumentException(
          "a bias of %d for a weight [%d, %d]".formatted(bias.cols(), weight.in(), weight.out()));
    }
  }
}
