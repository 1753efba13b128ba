package dev.loupe.kernels;

import java.util.Set;

/**
 * One row of the {@link KernelCatalogue}: a way to compute what its family computes.
 *
 * @param family name of the source file without its ending, e.g. {@code attention}
 * @param name short name within the family, e.g. {@code v3}
 * @param idea what it does differently, one line for a table
 * @param limits shapes that it does not take, one line; empty if it takes all
 * @param elements element types that it comes in; each is a kernel {@link #kernel}
 * @param minComputeCapability lowest compute capability times ten, e.g. 80
 */
public record Variant(
    String family,
    String name,
    String idea,
    String limits,
    Set<Element> elements,
    int minComputeCapability) {
  public Variant {
    elements = Set.copyOf(elements);
    if (family.isBlank() || name.isBlank() || idea.isBlank() || elements.isEmpty()) {
      throw new IllegalArgumentException(
          "a variant needs family, name, idea and elements: '%s' '%s' '%s' %s"
              .formatted(family, name, idea, elements));
    }
    if (minComputeCapability < 75 || minComputeCapability > 999) {
      throw new IllegalArgumentException(
          "%s %s: compute capability %d, not one times ten from 75 on"
              .formatted(family, name, minComputeCapability));
    }
  }

  /** The entry point for an element, e.g. {@code attention_v3_f32}. */
  public String kernel(Element element) {
    return "%s_%s_%s".formatted(family, name, element.suffix());
  }

  /** True if it comes in {@code element} and runs on a card of {@code computeCapability}. */
  public boolean supports(Element element, int computeCapability) {
    return elements.contains(element) && computeCapability >= minComputeCapability;
  }

  /** True if {@code kernel} is one of this row's: {@code family_name_..._element}. */
  boolean owns(String kernel) {
    String start = family + "_" + name + "_";
    return elements.stream()
        .map(Element::suffix)
        .anyMatch(
            end ->
                kernel.equals(start + end)
                    || (kernel.startsWith(start) && kernel.endsWith("_" + end)));
  }
}
