package dev.loupe.kernels;

import java.util.Set;

/** Checks, before a launch, what an attention kernel would otherwise find out by a fault. */
final class AttentionArguments {
  /** What queries, keys and values may be stored as. */
  static final Set<Element> FLOATS = Set.of(Element.F32, Element.F16, Element.BF16);

  private AttentionArguments() {}

  /**
   * @param atLeast elements that the launch reads or writes
   * @throws GpuException if the buffer holds something else, or less
   */
  static void buffer(Gpu gpu, String what, DeviceBuffer buffer, Element element, long atLeast) {
    if (buffer.gpu() != gpu || !buffer.isLive()) {
      throw new GpuException(
          "%s: the buffer %s"
              .formatted(what, buffer.isLive() ? "lies on another GPU" : "was closed"));
    }
    if (buffer.element() != element) {
      throw new GpuException(
          "%s holds %s where %s is expected"
              .formatted(what, buffer.element().suffix(), element.suffix()));
    }
    if (buffer.elements() < atLeast) {
      throw new GpuException(
          "%s has %d elements, %d too few for this launch"
              .formatted(what, buffer.elements(), atLeast - buffer.elements()));
    }
  }

  /** The element's number in kernel parameters. */
  static int code(Element element) {
    return switch (element) {
      case F32 -> 0;
      case F16 -> 1;
      case BF16 -> 2;
      default -> throw new GpuException("attention takes no " + element.suffix());
    };
  }

  static void element(String what, Element element) {
    if (!FLOATS.contains(element)) {
      throw new GpuException(
          "%s as %s: attention takes f32, f16 or bf16".formatted(what, element.suffix()));
    }
  }

  /** A value in a range, both ends included. */
  static void range(String what, int value, int least, int most) {
    if (value < least || value > most) {
      throw new GpuException("%s: %d, not in %d .. %d".formatted(what, value, least, most));
    }
  }

  /** The factor of q.k; the running maximum is taken before it, so its sign matters. */
  static void scale(float scale) {
    if (!(scale > 0 && scale < Float.POSITIVE_INFINITY)) {
      throw new GpuException("scale %s: not a positive number".formatted(scale));
    }
  }
}
