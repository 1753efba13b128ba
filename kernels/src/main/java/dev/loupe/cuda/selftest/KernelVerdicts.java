package dev.loupe.cuda.selftest;

import dev.loupe.cuda.Card;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Collectors;

/**
 * What {@link FirstContact} found out of the kernels on one card: which variants compute rightly in
 * which elements.
 *
 * @param card the very card, driver and kernels that this holds for
 * @param verdicts one for each variant and element that the card supports, in the catalogue's order
 * @param notes what was unusual about finding this out, one sentence each
 */
public record KernelVerdicts(Card card, List<Verdict> verdicts, List<String> notes) {
  /**
   * One of them.
   *
   * @param family as in {@link Variant}; also {@code graph}, and {@code cublas} where it is
   *     installed
   * @param variant its name
   * @param element that it was tried in
   * @param wrong why it must not be used; empty if it is right
   */
  public record Verdict(String family, String variant, Element element, String wrong) {
    /** True if it may be used. */
    public boolean isRight() {
      return wrong.isEmpty();
    }

    private boolean isOf(Variant v, Element e) {
      return family.equals(v.family()) && variant.equals(v.name()) && element == e;
    }
  }

  public KernelVerdicts {
    verdicts = List.copyOf(verdicts);
    notes = List.copyOf(notes);
  }

  /** True if {@code variant} was tried in {@code element} on this card and is right. */
  public boolean isRight(Variant variant, Element element) {
    return verdicts.stream().anyMatch(v -> v.isOf(variant, element) && v.isRight());
  }

  /** True if decoding steps may be replayed as graphs. */
  public boolean graphs() {
    return isRight(Trial.GRAPH, Element.F32);
  }

  /** True if cuBLAS is there and multiplies rightly in {@code element}. */
  public boolean cublas(Element element) {
    return Trial.CUBLAS.elements().contains(element) && isRight(Trial.CUBLAS, element);
  }

  /** True if there is nothing wrong but with cuBLAS, which is not needed. */
  public boolean kernelsAreRight() {
    return wrong().stream().allMatch(v -> v.family().equals(Trial.CUBLAS.family()));
  }

  /** Those that must not be used. */
  public List<Verdict> wrong() {
    return verdicts.stream().filter(v -> !v.isRight()).toList();
  }

  /** One line for people on a family: what is right, or what is wrong and what is left. */
  public String summary(String family) {
    List<Verdict> all = verdicts.stream().filter(v -> v.family().equals(family)).toList();
    Map<String, String> byElement =
        all.stream()
            .filter(Verdict::isRight)
            .collect(
                Collectors.groupingBy(
                    v -> v.element().suffix(),
                    LinkedHashMap::new,
                    Collectors.mapping(Verdict::variant, Collectors.joining(" "))));
    String right =
        byElement.entrySet().stream()
            .collect(
                Collectors.groupingBy(
                    Map.Entry::getValue, // elements with the same variants are said together
                    LinkedHashMap::new,
                    Collectors.mapping(Map.Entry::getKey, Collectors.joining(", "))))
            .entrySet()
            .stream()
            .map(e -> e.getKey() + " in " + e.getValue())
            .collect(Collectors.joining("; "));
    String wrong =
        all.stream()
            .filter(v -> !v.isRight())
            .map(v -> "%s %s (%s)".formatted(v.variant(), v.element().suffix(), v.wrong()))
            .collect(Collectors.joining("; "));
    return wrong.isEmpty()
        ? "ok: " + right
        : "WRONG: %s; right: %s".formatted(wrong, right.isEmpty() ? "none" : right);
  }

  /** The families of which there are verdicts, in order. */
  public List<String> families() {
    return verdicts.stream().map(Verdict::family).distinct().toList();
  }

  /** Why none of the candidates may be used, to follow a sentence that says so. */
  String reason(List<Variant> candidates, Element element) {
    return candidates.stream()
        .map(
            c ->
                "%s %s"
                    .formatted(
                        c.name(),
                        verdicts.stream()
                            .filter(v -> v.isOf(c, element))
                            .map(Verdict::wrong)
                            .findFirst()
                            .orElse("was not tried")))
        .collect(Collectors.joining("; ", " (", ")"));
  }

  KernelVerdicts withNotes(List<String> more) {
    List<String> all = new ArrayList<>(notes);
    all.addAll(more);
    return new KernelVerdicts(card, verdicts, all);
  }

  /** As they are kept; notes are not. */
  List<String> lines() {
    return verdicts.stream()
        .map(
            v ->
                String.join(
                    "\t",
                    v.isRight() ? "right" : "wrong",
                    v.family(),
                    v.variant(),
                    v.element().suffix(),
                    v.wrong()))
        .toList();
  }

  /** From {@link #lines}; empty if they are not those of all the trials of {@code card}. */
  static Optional<KernelVerdicts> of(Card card, List<String> lines) {
    List<Verdict> verdicts = new ArrayList<>();
    for (String line : lines) {
      String[] words = line.split("\t", -1);
      if (words.length != 5
          || Arrays.stream(Element.values()).noneMatch(e -> e.suffix().equals(words[3]))
          || words[0].equals("right") != words[4].isEmpty()) {
        return Optional.empty();
      }
      Element element = Element.valueOf(words[3].toUpperCase(Locale.ROOT));
      verdicts.add(new Verdict(words[1], words[2], element, words[4]));
    }
    List<Trial> trials = Trial.of(card);
    boolean complete = verdicts.size() == trials.size();
    for (int i = 0; complete && i < trials.size(); i++) {
      complete = verdicts.get(i).isOf(trials.get(i).variant(), trials.get(i).element());
    }
    return complete ? Optional.of(new KernelVerdicts(card, verdicts, List.of())) : Optional.empty();
  }
}
