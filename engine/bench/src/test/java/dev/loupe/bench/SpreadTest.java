package dev.loupe.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

class SpreadTest {
  @Test
  void quantilesByHand() {
    assertEquals(new Spread(7, 7, 7), Spread.of(List.of(7.0)));
    Spread five = Spread.of(List.of(50.0, 10.0, 40.0, 20.0, 30.0));
    assertEquals(30, five.median());
    assertEquals(14, five.p10(), 1e-12); // 0.4 of the way from 10 to 20
    assertEquals(46, five.p90(), 1e-12);
    assertEquals(15, Spread.of(List.of(20.0, 10.0)).median());
  }

  @Test
  void overlapsWhereAValueIsInBoth() {
    Spread spread = new Spread(5, 4, 6);
    assertTrue(spread.overlaps(new Spread(7, 6, 8)), "touches above");
    assertTrue(spread.overlaps(new Spread(3, 2, 4)), "touches below");
    assertTrue(spread.overlaps(new Spread(5, 4.5, 5.5)), "inside");
    assertTrue(spread.overlaps(new Spread(5, 1, 9)), "around");
    assertFalse(spread.overlaps(new Spread(7, 6.001, 8)), "above");
    assertFalse(spread.overlaps(new Spread(3, 2, 3.999)), "below");
  }
}
