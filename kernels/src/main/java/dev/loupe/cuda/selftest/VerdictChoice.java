package dev.loupe.cuda.selftest;

import dev.loupe.cuda.Card;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.KernelChoice;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.kernels.KernelCatalogue;
import dev.loupe.cuda.kernels.LinearKernels;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * Takes the fastest of the variants that are right on a card; before all others one that the user
 * named, wherever it takes the shape.
 */
public final class VerdictChoice implements KernelChoice {
  private final KernelVerdicts verdicts;
  private final KernelTimes times;
  private final Map<String, String> named;
  private final Set<Trial> right; // looked up before each launch of a prompt's pass

  /**
   * @param named name of the variant to take, by family
   * @throws IllegalArgumentException if there is no such family or variant, saying which there are
   */
  public VerdictChoice(KernelVerdicts verdicts, KernelTimes times, Map<String, String> named) {
    this.verdicts = verdicts;
    this.times = times;
    this.named = Map.copyOf(named);
    this.right =
        Trial.of(verdicts.card()).stream()
            .filter(trial -> verdicts.isRight(trial.variant(), trial.element()))
            .collect(Collectors.toUnmodifiableSet());
    named.forEach(VerdictChoice::requireKnown);
  }

  /**
   * Refuses a name that the catalogue lacks.
   *
   * @throws IllegalArgumentException if there is no such family or variant, saying which there are
   */
  public static void requireKnown(String family, String variant) {
    List<Variant> known = KernelCatalogue.of(family);
    if (known.isEmpty()) {
      throw new IllegalArgumentException(
          "there is no family of kernels called %s; there are %s"
              .formatted(family, String.join(", ", SelfTest.families())));
    }
    if (known.stream().noneMatch(v -> v.name().equals(variant))) {
      throw new IllegalArgumentException(
          "%s has no variant %s; it has %s"
              .formatted(
                  family,
                  variant,
                  known.stream().map(Variant::name).collect(Collectors.joining(", "))));
    }
  }

  /** The variants that the user named and that are condemned, one sentence each. */
  public List<String> warnings() {
    return verdicts.wrong().stream()
        .filter(v -> v.variant().equals(named.get(v.family())))
        .map(
            v ->
                "%s %s is used as asked, though it computes wrongly in %s on this card: %s"
                    .formatted(v.family(), v.variant(), v.element().suffix(), v.wrong()))
        .toList();
  }

  @Override
  public Optional<Variant> of(List<Variant> candidates, Element element, int rows) {
    @Nullable String name = named.get(candidates.getFirst().family());
    Optional<Variant> asked = candidates.stream().filter(v -> v.name().equals(name)).findFirst();
    if (asked.isPresent()) {
      return asked;
    }
    // of those that were not timed the first, which should be fastest by design
    return candidates.stream()
        .filter(v -> isRight(v, element))
        .min(Comparator.comparingDouble(v -> time(v, element, rows)));
  }

  private boolean isRight(Variant variant, Element element) {
    return variant.elements().contains(element) && right.contains(new Trial(variant, element));
  }

  private double time(Variant variant, Element element, int rows) {
    @Nullable Double time = times.of(variant, element, rows);
    return time == null ? Double.MAX_VALUE : time;
  }

  /** True if cuBLAS is right, and faster than what else would multiply so many rows. */
  public boolean takesCublas(Element element, int rows) {
    return verdicts.cublas(element)
        && !named.containsKey("linear")
        && times.cublasWins(
            LinearKernels.VARIANTS.stream().filter(v -> isRight(v, element)).toList(),
            element,
            rows);
  }

  /** The card that this is a choice for. */
  public Card card() {
    return verdicts.card();
  }

  /** What was measured to be the fastest, a line a family; empty if nothing was measured. */
  public List<String> fastest() {
    return times.summary();
  }

  /** Hash of all that this choice follows from, for what was seen of a model that it served. */
  public String key() {
    return Card.hash(List.of(verdicts.card().key(), times.key(), new TreeMap<>(named).toString()));
  }

  @Override
  public boolean startsEarly() {
    return verdicts.isRight(Trial.EARLY, Element.F32);
  }

  @Override
  public String distrust() {
    return "; " + FirstContact.distrust(verdicts.card());
  }

  @Override
  public String reason(List<Variant> candidates, Element element) {
    return verdicts.reason(candidates, element);
  }
}
