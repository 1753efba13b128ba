package dev.loupe.cuda.kernels;

import dev.loupe.cuda.BufferCheck;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.driver.Element;
import org.jspecify.annotations.Nullable;

/**
 * The parameters of out = x . W^T + b on a GPU.
 *
 * @param weight W [outputs, in] in F32, F16 or BF16, or in I8 with scales
 * @param scales [outputs, ceil(in / 64)] F32, as {@link Int8Weights} makes them; null unless weight
 *     is I8
 * @param bias b [outputs] F32, or null for none
 * @param in columns of x
 * @param outputs columns of out
 */
public record LinearMap(
    DeviceBuffer weight,
    @Nullable DeviceBuffer scales,
    @Nullable DeviceBuffer bias,
    int in,
    int outputs) {
  /** So that a grid's and a tile's numbers stay within an int. */
  private static final int MOST = 1 << 28;

  /**
   * @throws IllegalArgumentException if a buffer is too small, closed, of another element or on
   *     another GPU
   */
  public LinearMap {
    BufferCheck check = new BufferCheck("linear map", weight.gpu());
    check.size("in", in, 1, MOST);
    check.size("outputs", outputs, 1, MOST);
    check.holds("weight", weight, (long) outputs * in);
    if (weight.element() == Element.I32) {
      throw new IllegalArgumentException("linear map: weight holds I32, not floats or I8");
    }
    if ((weight.element() == Element.I8) != (scales != null)) {
      throw new IllegalArgumentException(
          "linear map: weight holds %s and there are %s scales; I8 needs them, no other does"
              .formatted(weight.element(), scales == null ? "no" : "" + scales.elements()));
    }
    if (scales != null) {
      check.holds(
          "scales", scales, Element.F32, (long) outputs * Math.ceilDiv(in, Int8Weights.GROUP));
    }
    if (bias != null) {
      check.holds("bias", bias, Element.F32, outputs);
    }
  }

  /** True if every row of W starts at a multiple of 16 bytes. */
  boolean rowsAre16Bytes() {
    return rowsAre16Bytes(weight.element(), in);
  }

  static boolean rowsAre16Bytes(Element element, int in) {
    return (long) in * element.bytes() % 16 == 0;
  }
}
