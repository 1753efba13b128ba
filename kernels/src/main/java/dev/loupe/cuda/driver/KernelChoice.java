package dev.loupe.cuda.driver;

import java.util.List;
import java.util.Optional;

/** Which variant of a kernel family serves on a card. Families ask it at every choice they have. */
@FunctionalInterface
public interface KernelChoice {
  /** Trusts every variant and takes the first, as long as nothing is known of the card. */
  KernelChoice UNTRIED = (candidates, element, rows) -> Optional.of(candidates.getFirst());

  /** Takes {@code variant} where it is a candidate; elsewhere as {@link #UNTRIED}. */
  static KernelChoice preferring(Variant variant) {
    return (candidates, element, rows) ->
        candidates.contains(variant) ? Optional.of(variant) : UNTRIED.of(candidates, element, rows);
  }

  /**
   * The variant to run.
   *
   * @param candidates variants of one family that take the shape and run on the card, the one that
   *     should be fastest by design first; not empty
   * @param element of the kernel, as in {@link Variant#kernel}
   * @param rows of the call
   * @return one of the candidates; empty if none of them computes rightly on this card
   */
  Optional<Variant> of(List<Variant> candidates, Element element, int rows);

  /**
   * Whether kernels of a step may start while the one before them runs, where the card and the
   * driver can do that.
   */
  default boolean startsEarly() {
    return false;
  }

  /**
   * Called when a kernel has failed or computed what it can't have: what follows from that, to be
   * added to the sentence that says so; empty if nothing does.
   */
  default String distrust() {
    return "";
  }

  /** What to throw where a kernel has computed what it can't have; nothing is trusted then. */
  default GpuException wrong(String message) {
    return new GpuException(message + distrust());
  }

  /**
   * What to throw where nothing can take the kernels' place.
   *
   * @param card its name
   */
  default GpuException none(List<Variant> candidates, Element element, String card) {
    return new GpuException(
        "no kernel of %s in %s computes rightly on %s%s"
            .formatted(
                candidates.getFirst().family(),
                element.suffix(),
                card,
                reason(candidates, element)));
  }

  /** Why there is none, to follow a sentence that says so; empty if that is not known. */
  default String reason(List<Variant> candidates, Element element) {
    return "";
  }
}
