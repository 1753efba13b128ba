package dev.loupe.text;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

class StopStringsTest {
  private static String random(Random random, int length) {
    StringBuilder text = new StringBuilder();
    for (int i = 0; i < length; i++) {
      text.append((char) ('a' + random.nextInt(2)));
    }
    return text.toString();
  }

  /** Where the text ends by definition: the stop that is complete first, the longest of those. */
  private static int naiveCut(String text, List<String> stops) {
    int bestEnd = Integer.MAX_VALUE;
    int cut = -1;
    for (String stop : stops) {
      int start = text.indexOf(stop);
      int end = start + stop.length();
      if (start >= 0 && (end < bestEnd || (end == bestEnd && start < cut))) {
        bestEnd = end;
        cut = start;
      }
    }
    return cut;
  }

  /** How many characters at the end of {@code text} may be the beginning of a stop string. */
  private static int naiveHold(String text, List<String> stops) {
    int hold = 0;
    for (String stop : stops) {
      for (int n = 1; n < stop.length(); n++) {
        if (text.endsWith(stop.substring(0, n))) {
          hold = Math.max(hold, n);
        }
      }
    }
    return hold;
  }

  @Test
  void agreesWithASearchOfTheWholeText() {
    Random random = new Random(20);
    int cuts = 0;
    for (int round = 0; round < 20_000; round++) {
      List<String> stops = new ArrayList<>();
      for (int n = random.nextInt(4); n > 0; n--) {
        stops.add(random(random, 1 + random.nextInt(5)));
      }
      String text = random(random, random.nextInt(14));
      int cut = naiveCut(text, stops);
      StopStrings stopStrings = new StopStrings(stops);
      StringBuilder released = new StringBuilder();
      int at = 0;
      while (at < text.length()) {
        int end = Math.min(text.length(), at + random.nextInt(4));
        released.append(stopStrings.push(text.substring(at, end)));
        at = end;
        if (!stopStrings.stopped()) {
          String sofar = text.substring(0, at);
          assertEquals(-1, naiveCut(sofar, stops), "late: " + sofar + stops);
          assertEquals(at - naiveHold(sofar, stops), released.length(), sofar + stops);
        }
      }
      released.append(stopStrings.finish());
      assertEquals(cut >= 0, stopStrings.stopped(), text + stops);
      assertEquals(cut >= 0 ? text.substring(0, cut) : text, released.toString(), text + stops);
      cuts += cut >= 0 ? 1 : 0;
    }
    assertTrue(cuts > 5_000 && cuts < 15_000, "both outcomes are tested: " + cuts);
  }

  @Test
  void withoutStopsInsideOneAnotherTheCutIsTheLeftmostMatch() {
    List<String> stops = List.of("abb", "aab", "bbbb", "baba");
    Random random = new Random(21);
    for (int round = 0; round < 2_000; round++) {
      String text = random(random, 16);
      int first = stops.stream().mapToInt(text::indexOf).filter(i -> i >= 0).min().orElse(16);
      StopStrings stopStrings = new StopStrings(stops);
      String released = stopStrings.push(text) + stopStrings.finish();
      assertEquals(text.substring(0, first), released, text);
    }
  }

  @Test
  void aStopThatBeginsInsideOneTokenAndEndsInsideAnother() {
    StopStrings stops = new StopStrings(List.of("\nROMEO:"));
    assertEquals("Ay me!", stops.push("Ay me!\nRO"));
    assertEquals("\nROSALINE", stops.push("SALINE"));
    assertEquals("", stops.push("\nRO"));
    assertEquals("", stops.push("MEO"));
    assertFalse(stops.stopped());
    assertEquals("", stops.push(": O"));
    assertTrue(stops.stopped());
    assertEquals("", stops.push("more"));
    assertEquals("", stops.finish());
  }

  @Test
  void overlappingBeginnings() {
    StopStrings stops = new StopStrings(List.of("aab"));
    assertEquals("a", stops.push("aaa"));
    assertEquals("", stops.push("b"));
    assertTrue(stops.stopped());
  }

  @Test
  void heldTextIsReleasedAtTheEnd() {
    StopStrings stops = new StopStrings(List.of("</end>", "😀😀"));
    assertEquals("x", stops.push("x</en"));
    assertEquals("</en", stops.finish());
    assertEquals("", stops.push("😀"));
    assertEquals("😀😁", stops.push("😁")); // never half a pair
    assertFalse(stops.stopped());
  }

  @Test
  void noStopsHoldNothing() {
    StopStrings stops = new StopStrings(List.of());
    assertEquals("text", stops.push("text"));
    assertEquals("", stops.finish());
  }

  @Test
  void uselessStopsAreRefused() {
    assertThrows(IllegalArgumentException.class, () -> new StopStrings(List.of("a", "")));
    assertThrows(IllegalArgumentException.class, () -> new StopStrings(List.of("a\uD83D")));
  }
}
