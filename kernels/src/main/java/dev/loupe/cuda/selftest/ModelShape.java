package dev.loupe.cuda.selftest;

import dev.loupe.cuda.driver.Element;

/**
 * The sizes of a model that decide how long its kernels take.
 *
 * @param width of the residual stream
 * @param inner width of the MLP
 * @param heads of each layer, of width / heads each
 * @param element of a prompt's activations, its weights and the KV cache: F32, F16 or BF16
 */
public record ModelShape(int width, int inner, int heads, Element element) {
  public ModelShape {
    if (width < 1 || inner < 1 || heads < 1 || width % heads != 0 || !element.isFloat()) {
      throw new IllegalArgumentException(
          "a model of width %d, inner %d, %d heads in %s".formatted(width, inner, heads, element));
    }
  }

  int headSize() {
    return width / heads;
  }
}
