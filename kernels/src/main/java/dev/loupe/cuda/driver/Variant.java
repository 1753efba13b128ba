package dev.loupe.cuda.driver;

import java.util.Comparator;
import java.util.List;
import java.util.Set;

/**
 * One row of the catalogue of kernels: a way to compute what its family computes.
 *
 * @param family name of the source file without its ending, e.g. {@code attention}
 * @param name short name within the family, e.g. {@code v3}
 * @param idea what it does differently, one line for a table
 * @param limits shapes that it does not take, one line; empty if it takes all
 * @param elements element types that it comes in; each has kernels of its own
 * @param minComputeCapability lowest compute capability times ten, e.g. 80
 * @param maxComputeCapability highest one
 */
public record Variant(
    String family,
    String name,
    String idea,
    String limits,
    Set<Element> elements,
    int minComputeCapability,
    int maxComputeCapability) {
  private static final int ANY_CARD = 999;

  /** One that runs on every card from a compute capability on. */
  public Variant(
      String family,
      String name,
      String idea,
      String limits,
      Set<Element> elements,
      int minComputeCapability) {
    this(family, name, idea, limits, elements, minComputeCapability, ANY_CARD);
  }

  public Variant {
    elements = Set.copyOf(elements);
    if (family.isBlank() || name.isBlank() || idea.isBlank() || elements.isEmpty()) {
      throw new IllegalArgumentException(
          "a variant needs family, name, idea and elements: '%s' '%s' '%s' %s"
              .formatted(family, name, idea, elements));
    }
    if (minComputeCapability < 75 || minComputeCapability > maxComputeCapability) {
      throw new IllegalArgumentException(
          "%s %s: compute capability %d to %d, not ones times ten from 75 on"
              .formatted(family, name, minComputeCapability, maxComputeCapability));
    }
  }

  /** How the names of plain variants begin. */
  private static final String PLAIN = "v0";

  /** Stands in the name of a kernel that is told its elements, and so serves for all of them. */
  private static final String ANY = "any";

  /**
   * True if it was written down as the definition reads: one thread for each output or row, nothing
   * shared, nothing clever. It serves where the others fail, and its kernels take any element.
   */
  public boolean isPlain() {
    return name.startsWith(PLAIN);
  }

  /**
   * How the names of the entry points for an element begin, e.g. {@code attention_v3_f32}; the
   * whole name where there is one for each element.
   */
  public String kernel(Element element) {
    return "%s_%s_%s".formatted(family, name, isPlain() ? ANY : element.suffix());
  }

  /** A family's list from what there is for each of its operations: the plain ones first. */
  public static List<Variant> plainestFirst(List<List<Variant>> operations) {
    return operations.stream()
        .flatMap(List::stream)
        .sorted(Comparator.comparing(Variant::isPlain).reversed())
        .toList();
  }

  /** True if it comes in {@code element} and runs on a card of {@code computeCapability}. */
  public boolean supports(Element element, int computeCapability) {
    return elements.contains(element) && runsOn(computeCapability);
  }

  /** True if it runs on a card of {@code computeCapability}, times ten. */
  public boolean runsOn(int computeCapability) {
    return computeCapability >= minComputeCapability && computeCapability <= maxComputeCapability;
  }

  /** On which cards it runs, for people, e.g. {@code 8.0 and later} or {@code 9.0 alone}. */
  public String computeCapabilities() {
    return "%d.%d %s"
        .formatted(
            minComputeCapability / 10,
            minComputeCapability % 10,
            maxComputeCapability == ANY_CARD ? "and later" : "alone");
  }

  /**
   * True if {@code kernel} is one of this row's for {@code element}: {@code family_name_element},
   * with more parts before or after the element where there are several, as in {@code
   * attention_v4_d64_f16}; {@code any} stands for all elements.
   */
  public boolean owns(String kernel, Element element) {
    String start = family + "_" + name + "_";
    if (!elements.contains(element) || !kernel.startsWith(start)) {
      return false;
    }
    List<String> parts = List.of(kernel.substring(start.length()).split("_", -1));
    return parts.contains(isPlain() ? ANY : element.suffix());
  }
}
