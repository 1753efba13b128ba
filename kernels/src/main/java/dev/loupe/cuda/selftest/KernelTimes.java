package dev.loupe.cuda.selftest;

import dev.loupe.cuda.Card;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.TreeMap;
import org.jspecify.annotations.Nullable;

/**
 * How long the variants take on one card on the shapes of one model. Where a family was not timed,
 * its variants stay in the order of their design.
 */
public final class KernelTimes {
  /** Nothing was timed. */
  public static final KernelTimes NONE = new KernelTimes(Map.of());

  /** Rows of the calls that are timed; others count as the next larger. */
  static final List<Integer> ROWS = List.of(1, 8, 16, 64, 512);

  /** What was timed. */
  record Key(String family, String variant, Element element, int rows) {}

  private final Map<Key, Double> microseconds;

  KernelTimes(Map<Key, Double> microseconds) {
    this.microseconds = Map.copyOf(microseconds);
  }

  private static int bucket(int rows) {
    return ROWS.stream().filter(r -> r >= rows).findFirst().orElse(ROWS.getLast());
  }

  /** Microseconds of a call with about so many rows; null if that was not timed. */
  public @Nullable Double of(Variant variant, Element element, int rows) {
    return microseconds.get(new Key(variant.family(), variant.name(), element, bucket(rows)));
  }

  /** True if cuBLAS was faster than the fastest of {@code candidates}. */
  boolean cublasWins(List<Variant> candidates, Element element, int rows) {
    @Nullable Double library = of(Trial.CUBLAS, element, rows);
    return library != null
        && candidates.stream()
            .map(v -> of(v, element, rows))
            .filter(Objects::nonNull)
            .allMatch(own -> library < own);
  }

  /** True if nothing was timed. */
  public boolean isEmpty() {
    return microseconds.isEmpty();
  }

  /** A line for people on each family: the fastest for so many rows, and its time. */
  List<String> summary() {
    Map<String, List<String>> lines = new TreeMap<>();
    for (int rows : ROWS) {
      Map<String, Map.Entry<Key, Double>> fastest = new TreeMap<>();
      microseconds.entrySet().stream()
          .filter(e -> e.getKey().rows() == rows)
          .forEach(
              e ->
                  fastest.merge(
                      work(e.getKey()), e, (a, b) -> a.getValue() <= b.getValue() ? a : b));
      fastest.forEach(
          (work, e) ->
              lines
                  .computeIfAbsent(work, w -> new ArrayList<>())
                  .add(
                      String.format(
                          Locale.ROOT,
                          "%d rows %s %.0f us",
                          rows,
                          e.getKey().family().equals(Trial.CUBLAS.family())
                              ? "cuBLAS"
                              : e.getKey().variant(),
                          e.getValue())));
    }
    return lines.entrySet().stream()
        .map(e -> e.getKey() + ": " + String.join(", ", e.getValue()))
        .toList();
  }

  /** What a variant competes for: cuBLAS does the work of the linear maps. */
  private static String work(Key key) {
    boolean library = key.family().equals(Trial.CUBLAS.family());
    return (library ? "linear" : key.family()) + " " + key.element().suffix();
  }

  /** As they are kept, in order. */
  List<String> lines() {
    return microseconds.entrySet().stream()
        .map(
            e -> {
              Key k = e.getKey();
              return String.format(
                  Locale.ROOT,
                  "%s\t%s\t%s\t%d\t%.3f",
                  k.family(),
                  k.variant(),
                  k.element().suffix(),
                  k.rows(),
                  e.getValue());
            })
        .sorted()
        .toList();
  }

  /** From {@link #lines}; empty if they are not such. */
  static Optional<KernelTimes> of(List<String> lines) {
    Map<Key, Double> times = new HashMap<>();
    try {
      for (String line : lines) {
        String[] words = line.split("\t", -1);
        Element element = Element.valueOf(words[2].toUpperCase(Locale.ROOT));
        times.put(
            new Key(words[0], words[1], element, Integer.parseInt(words[3])),
            Double.valueOf(words[4]));
      }
      return Optional.of(new KernelTimes(times));
    } catch (IllegalArgumentException | ArrayIndexOutOfBoundsException e) {
      return Optional.empty();
    }
  }

  /** Hash of what was kept. */
  public String key() {
    return Card.hash(new ArrayList<>(lines()));
  }
}
