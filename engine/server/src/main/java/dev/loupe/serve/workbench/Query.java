package dev.loupe.serve.workbench;

import dev.loupe.interpret.MapKind;
import dev.loupe.serve.http.ApiException;
import dev.loupe.serve.http.Request;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * The parameters of a request, behind the question mark of its path; one that is wrong gives an
 * {@link ApiException} that names it.
 */
record Query(Request request) {
  String text(String name) {
    String value = request.parameter(name);
    if (value == null) {
      throw ApiException.field(name, null, "%s is missing".formatted(name));
    }
    return value;
  }

  String id(String name) {
    String value = text(name);
    if (!value.matches("[0-9a-f]{1,64}")) {
      throw ApiException.field(name, null, "%s is not the name of a run".formatted(name));
    }
    return value;
  }

  @Nullable String optionalId(String name) {
    return request.parameter(name) == null ? null : id(name);
  }

  int number(String name, int otherwise, int least, int most) {
    String value = request.parameter(name);
    if (value == null) {
      return otherwise;
    }
    try {
      int number = Integer.parseInt(value);
      if (number >= least && number <= most) {
        return number;
      }
    } catch (NumberFormatException e) {
      // said below
    }
    throw ApiException.field(
        name, null, "%s is not a whole number from %d to %d".formatted(name, least, most));
  }

  /** Whether a parameter has this value. */
  boolean is(String name, String value) {
    return value.equals(request.parameter(name));
  }

  /** One of some words. */
  String choice(String name, String otherwise, String... words) {
    String value = request.parameter(name);
    if (value == null) {
      return otherwise;
    }
    if (!List.of(words).contains(value)) {
      throw ApiException.field(
          name, null, "%s is not one of %s".formatted(name, String.join(", ", words)));
    }
    return value;
  }

  /** Which maps are meant: attention, without the parameter. */
  MapKind kind() {
    return switch (choice("of", "weights", "weights", "values", "rollout")) {
      case "values" -> MapKind.VALUE_WEIGHTED;
      case "rollout" -> MapKind.ROLLOUT;
      default -> MapKind.WEIGHTS;
    };
  }

  /** Two numbers with a dash between them; null if there is no such parameter. */
  private int @Nullable [] pair(String name) {
    String value = request.parameter(name);
    if (value == null) {
      return null;
    }
    Matcher pair = Pattern.compile("([0-9]{1,9})-([0-9]{1,9})").matcher(value);
    if (!pair.matches()) {
      throw ApiException.field(name, null, "%s is not a range such as 0-256".formatted(name));
    }
    return new int[] {Integer.parseInt(pair.group(1)), Integer.parseInt(pair.group(2))};
  }

  /** From and one past the end, clipped to {@code most}; all without the parameter. */
  int[] range(String name, int most) {
    int[] pair = pair(name);
    if (pair == null) {
      return new int[] {0, most};
    }
    int to = Math.min(pair[1], most);
    if (pair[0] >= to) {
      throw ApiException.field(name, null, "nothing of %s is there".formatted(name));
    }
    return new int[] {pair[0], to};
  }

  /** Likewise, but the parameter's end is the last that is meant. */
  int[] layers(String name, int most) {
    int[] pair = pair(name);
    if (pair == null) {
      return new int[] {0, most};
    }
    if (pair[0] > pair[1] || pair[1] >= most) {
      throw ApiException.field(
          name, null, "%s: the model has layers 0 to %d".formatted(name, most - 1));
    }
    return new int[] {pair[0], pair[1] + 1};
  }
}
