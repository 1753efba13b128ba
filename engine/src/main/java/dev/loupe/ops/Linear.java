package dev.loupe.ops;

/**
 * An affine map, Hugging Face's Conv1D: out = x . weight + bias.
 *
 * @param weight [in, out]
 * @param bias [1, out], f32
 */
public record Linear(Tensor weight, Tensor bias) {
  public Linear {
    if (bias.cols() != weight.cols()) {
      throw new IllegalArgumentException(
          "a bias of %d for a weight [%d, %d]"
              .formatted(bias.cols(), weight.rows(), weight.cols()));
    }
  }
}
