package dev.loupe;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.generate.Token;
import java.util.List;
import org.junit.jupiter.api.Test;

/** What gpu-verify takes for a tie is one, and nothing else is. */
class SameIdsTest {
  /** A token that was chosen, id 7 first at -1, id 8 behind it by {@code gap}. */
  private static Token token(int id, double gap) {
    List<Token.Candidate> top =
        List.of(new Token.Candidate(7, "a", -1), new Token.Candidate(8, "b", -1 - gap));
    return new Token(id, "a", "a", "61", 0, 1, false, true, -1, 0, top);
  }

  @Test
  void aTieIsTheOtherTokenCloseBehindTheBest() {
    List<Token> cpu = List.of(token(7, 5), token(7, 0.0009));
    assertTrue(SameIds.isNearTie(cpu, List.of(token(7, 5), token(8, 1)), 1));
    assertFalse(SameIds.isNearTie(cpu, List.of(token(7, 5), token(9, 1)), 1), "a third token");
    assertFalse(SameIds.isNearTie(cpu, List.of(token(8, 5), token(7, 1)), 0), "5 behind");
    assertFalse(
        SameIds.isNearTie(List.of(token(7, 0.0011)), List.of(token(8, 1)), 0), "too far behind");
  }

  @Test
  void aTextThatEndsEarlierIsAnother() {
    List<Token> cpu = List.of(token(7, 0), token(7, 0));
    List<Token> card = List.of(token(7, 0));
    assertEquals(1, SameIds.firstDifference(cpu, card));
    assertFalse(SameIds.isNearTie(cpu, card, 1));
    assertEquals(-1, SameIds.firstDifference(cpu, List.of(token(7, 3), token(7, 4))));
    assertEquals(0, SameIds.firstDifference(cpu, List.of(token(8, 0), token(7, 0))));
  }
}
