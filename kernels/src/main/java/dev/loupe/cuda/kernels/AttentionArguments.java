package dev.loupe.cuda.kernels;

import dev.loupe.cuda.BufferCheck;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import java.util.Set;

/** Checks, before a launch, what an attention kernel would otherwise find out by a fault. */
final class AttentionArguments {
  /** What queries, keys and values may be stored as. */
  static final Set<Element> FLOATS = Set.of(Element.F32, Element.F16, Element.BF16);

  private AttentionArguments() {}

  /**
   * @param atLeast elements that the launch reads or writes
   * @throws IllegalArgumentException as {@link BufferCheck#holds} says
   */
  static void buffer(Gpu gpu, String what, DeviceBuffer buffer, Element element, long atLeast) {
    new BufferCheck("attention", gpu).holds(what, buffer, element, atLeast);
  }

  static void element(String what, Element element) {
    if (!FLOATS.contains(element)) {
      throw new IllegalArgumentException(
          "%s as %s: attention takes f32, f16 or bf16".formatted(what, element.suffix()));
    }
  }

  /** A value in a range, both ends included. */
  static void range(String what, int value, int least, int most) {
    if (value < least || value > most) {
      throw new IllegalArgumentException(
          "%s: %d, not in %d .. %d".formatted(what, value, least, most));
    }
  }

  /** The factor of q.k; the running maximum is taken before it, so its sign matters. */
  static void scale(float scale) {
    if (!(scale > 0 && scale < Float.POSITIVE_INFINITY)) {
      throw new IllegalArgumentException("scale %s: not a positive number".formatted(scale));
    }
  }
}
