package dev.loupe.cuda.selftest;

import dev.loupe.cuda.Card;
import dev.loupe.cuda.driver.EarlyLaunch;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.kernels.KernelCatalogue;
import java.util.List;
import java.util.Set;
import java.util.stream.Stream;

/**
 * What first contact tries by itself: a variant in an element.
 *
 * @param variant of the {@link KernelCatalogue}, or one of those below
 * @param element one that it comes in
 */
record Trial(Variant variant, Element element) {
  /** Graphs, which can be done without. */
  static final Variant GRAPH =
      new Variant("graph", "replay", "launches replayed as a graph", "", Set.of(Element.F32), 75);

  /** Kernels of a graph that start before the one before them has ended, likewise. */
  static final Variant EARLY =
      new Variant("graph", "early", "launches that start early", "", Set.of(Element.F32), 90);

  /** cuBLAS, likewise. */
  static final Variant CUBLAS =
      new Variant(
          "cublas",
          "gemm",
          "products of cuBLAS",
          "",
          Set.of(Element.F32, Element.F16, Element.BF16),
          75);

  Trial {
    if (!variant.elements().contains(element)) {
      throw new IllegalArgumentException(
          "%s %s does not come in %s".formatted(variant.family(), variant.name(), element));
    }
  }

  /** All that a card supports, in the order of the catalogue. */
  static List<Trial> of(Card card) {
    Stream<Variant> others =
        card.cublas().isEmpty() ? Stream.of(GRAPH, EARLY) : Stream.of(GRAPH, EARLY, CUBLAS);
    return Stream.concat(KernelCatalogue.all().stream(), others)
        .filter(v -> !v.equals(EARLY) || EarlyLaunch.isKnown(card.computeCapability(), card.cuda()))
        .flatMap(
            v ->
                Stream.of(Element.values())
                    .filter(e -> v.supports(e, card.computeCapability()))
                    .map(e -> new Trial(v, e)))
        .toList();
  }

  @Override
  public String toString() {
    return "%s %s %s".formatted(variant.family(), variant.name(), element.suffix());
  }
}
