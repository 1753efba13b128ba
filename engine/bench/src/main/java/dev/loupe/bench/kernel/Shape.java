package dev.loupe.bench.kernel;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * A size for each axis of an operation.
 *
 * @param sizes in the order of {@link Operation#axes}, each 1 to {@value #MOST}
 */
public record Shape(Operation operation, List<Integer> sizes) {
  private static final int MOST = 1 << 20;

  /** Elements that the largest array of a shape may have, so that Java can index it. */
  private static final long MOST_ELEMENTS = 1L << 30;

  public Shape {
    sizes = List.copyOf(sizes);
    if (sizes.size() != operation.axes().size()) {
      throw new IllegalArgumentException(
          "%s has the axes %s, not %d of them"
              .formatted(operation.label(), operation.axes(), sizes.size()));
    }
    for (int i = 0; i < sizes.size(); i++) {
      if (sizes.get(i) < 1 || sizes.get(i) > MOST) {
        throw new IllegalArgumentException(
            "%s=%d: not 1 to %d".formatted(operation.axes().get(i), sizes.get(i), MOST));
      }
    }
  }

  public static Shape of(Operation operation, Integer... sizes) {
    return new Shape(operation, List.of(sizes));
  }

  /** The size of an axis. */
  public int size(String axis) {
    return sizes.get(operation.axes().indexOf(axis));
  }

  /**
   * Refuses what no array can hold.
   *
   * @throws IllegalArgumentException if the operation's largest input or output is too large
   */
  void requireIndexable() {
    long rows = sizes.getFirst();
    long largest =
        switch (operation) {
          case ATTENTION, DECODE_ATTENTION, MAP -> rows * 3 * size("H") * size("D");
          case LINEAR ->
              Math.max(Math.max(rows * size("K"), rows * size("N")), (long) size("K") * size("N"));
          case LAYERNORM, SOFTMAX, GELU -> rows * size("C");
        };
    if (largest > MOST_ELEMENTS) {
      throw new IllegalArgumentException(
          "%s has %d elements in one array: more than %d".formatted(this, largest, MOST_ELEMENTS));
    }
  }

  /** {@code T=512 H=12 D=64}. */
  @Override
  public String toString() {
    return IntStream.range(0, sizes.size())
        .mapToObj(i -> operation.axes().get(i) + "=" + sizes.get(i))
        .collect(Collectors.joining(" "));
  }

  /**
   * The shapes that a user asks for, e.g. {@code T=128..1024,H=12,D=64}: {@code a..b} doubles from
   * a to b, a number without an axis is another size of the axis before it, and axes that are not
   * named keep the sizes of {@code others}. The first axis varies fastest.
   *
   * @param others what holds for axes that {@code text} does not name; at least one shape
   * @throws IllegalArgumentException if it is not such a text, with the reason
   */
  public static List<Shape> parse(Operation operation, String text, List<Shape> others) {
    Map<String, List<Integer>> named = new LinkedHashMap<>();
    String axis = "";
    for (String part : text.split(",", -1)) {
      String range = part.strip();
      int equals = range.indexOf('=');
      if (equals >= 0) {
        axis = range.substring(0, equals).strip();
        range = range.substring(equals + 1).strip();
        if (!operation.axes().contains(axis)) {
          throw new IllegalArgumentException(
              "'%s' is no axis of %s: it has %s"
                  .formatted(axis, operation.label(), String.join(", ", operation.axes())));
        }
      }
      if (axis.isEmpty()) {
        throw new IllegalArgumentException(
            "'%s' is no shape: %s=128..1024, for example"
                .formatted(text, operation.axes().getFirst()));
      }
      named.computeIfAbsent(axis, a -> new ArrayList<>()).addAll(sizes(axis, range));
    }
    List<List<Integer>> all = List.of(List.of());
    for (int i = operation.axes().size() - 1; i >= 0; i--) {
      int at = i;
      List<Integer> sizes =
          named.getOrDefault(
              operation.axes().get(i),
              others.stream().map(o -> o.sizes().get(at)).distinct().toList());
      List<List<Integer>> longer = new ArrayList<>();
      for (List<Integer> rest : all) {
        for (int size : sizes) {
          List<Integer> one = new ArrayList<>(List.of(size));
          one.addAll(rest);
          longer.add(one);
        }
      }
      all = longer;
    }
    return all.stream().map(sizes -> new Shape(operation, sizes)).distinct().toList();
  }

  private static List<Integer> sizes(String axis, String range) {
    int dots = range.indexOf("..");
    if (dots < 0) {
      return List.of(number(axis, range));
    }
    int from = number(axis, range.substring(0, dots));
    int to = number(axis, range.substring(dots + 2));
    if (from < 1 || to < from) {
      throw new IllegalArgumentException(
          "%s=%s: give the smaller size first".formatted(axis, range));
    }
    List<Integer> sizes = new ArrayList<>();
    for (long size = from; size <= to; size *= 2) {
      sizes.add((int) size);
    }
    return sizes;
  }

  private static int number(String axis, String text) {
    try {
      return Integer.parseInt(text.strip());
    } catch (NumberFormatException e) {
      throw new IllegalArgumentException(
          "%s=%s: '%s' is no whole number".formatted(axis, text, text.strip()));
    }
  }
}
