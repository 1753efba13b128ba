package dev.loupe.text;

import java.util.List;

/**
 * Ends a text before the first stop string in it, while the text arrives in pieces. Text that may
 * be the beginning of a stop string is held back, and nothing more than that; what was released is
 * never taken back.
 *
 * <p>The first stop string is the one that is complete first; of several that are complete at the
 * same character, the longest. So the result does not depend on how the text is cut into pieces,
 * and generation stops as soon as it can. For one text and one thread.
 */
public final class StopStrings {
  private final List<String> stops;
  private final StringBuilder held = new StringBuilder();
  private boolean stopped;

  /**
   * @param stops any number of strings, none of them empty
   * @throws IllegalArgumentException if one is empty or has half a surrogate pair
   */
  public StopStrings(List<String> stops) {
    this.stops = List.copyOf(stops);
    for (String stop : stops) {
      if (stop.isEmpty()) {
        throw new IllegalArgumentException(
            "a stop string is empty: it would end every text at once");
      }
      if (stop.codePoints().anyMatch(c -> c >= 0xD800 && c <= 0xDFFF)) {
        throw new IllegalArgumentException("a stop string has half a surrogate pair");
      }
    }
  }

  /**
   * Takes the next piece of the text.
   *
   * @return what is now known to come before any stop string, perhaps nothing; after a stop string
   *     always nothing
   */
  public String push(String piece) {
    StringBuilder released = new StringBuilder();
    for (int i = 0; i < piece.length() && !stopped; i++) {
      held.append(piece.charAt(i));
      int complete = longestCompleteStop();
      int keep = complete > 0 ? complete : longestBegunStop();
      released.append(held, 0, held.length() - keep);
      held.delete(0, held.length() - keep);
      if (complete > 0) {
        stopped = true;
        held.setLength(0);
      }
    }
    return released.toString();
  }

  /** Whether a stop string has appeared. */
  public boolean stopped() {
    return stopped;
  }

  /** Ends the text; returns what was held back and turns out to be no stop string. */
  public String finish() {
    String rest = held.toString();
    held.setLength(0);
    return rest;
  }

  /** Length of the longest stop string that the held text ends with, or 0. */
  private int longestCompleteStop() {
    int longest = 0;
    for (String stop : stops) {
      int start = held.length() - stop.length();
      if (start >= 0 && stop.length() > longest && held.indexOf(stop, start) == start) {
        longest = stop.length();
      }
    }
    return longest;
  }

  /** Length of the longest end of the held text that begins a stop string, or 0. */
  private int longestBegunStop() {
    for (int start = 0; start < held.length(); start++) {
      String end = held.substring(start);
      if (stops.stream().anyMatch(stop -> stop.startsWith(end))) {
        return end.length();
      }
    }
    return 0;
  }
}
