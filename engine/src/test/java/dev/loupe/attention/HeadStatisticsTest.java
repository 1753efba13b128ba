package dev.loupe.attention;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.attention.HeadStatistics.Edge;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Each formula on numbers that are worked out in the comments. */
class HeadStatisticsTest {
  private static final int[] LAYER = {3};
  private static final int[] HEAD = {1};
  private static final double EXACT = 1e-12; // all numbers are sums of powers of two

  /** P of four tokens. */
  private static final float[][] P = {
    {1}, {0.25f, 0.75f}, {0.5f, 0.125f, 0.375f}, {0.0625f, 0.25f, 0.5f, 0.1875f}
  };

  private static HeadStatistics of(int[] ids, float[]... rows) {
    HeadStatistics all = HeadStatistics.ofText(LAYER, HEAD, false);
    all.tokens(ids);
    feed(all, rows);
    return all;
  }

  private static void feed(HeadStatistics all, float[]... rows) {
    for (int query = 0; query < rows.length; query++) {
      all.row(3, 1, 0, query, rows[query]);
    }
  }

  private static double score(HeadStatistics all, HeadScore score) {
    return all.score(score, 3, 1);
  }

  @Test
  void whereARowLooks() {
    HeadStatistics all = of(new int[] {7, 8, 7, 8}, P);
    // queries 1, 2, 3
    assertEquals((0.25 + 0.5 + 0.0625) / 3, score(all, HeadScore.FIRST_TOKEN), EXACT);
    assertEquals((0.75 + 0.375 + 0.1875) / 3, score(all, HeadScore.SELF), EXACT);
    assertEquals((0.25 + 0.125 + 0.5) / 3, score(all, HeadScore.PREVIOUS_TOKEN), EXACT);
    // 7 8 7 8: query 2 repeats token 0, which 1 follows; query 3 repeats 1, which 2 follows
    assertEquals((0.5 + 0.25) / 2, score(all, HeadScore.DUPLICATE_TOKEN), EXACT);
    assertEquals((0.125 + 0.5) / 2, score(all, HeadScore.INDUCTION), EXACT);
    assertEquals(4, all.tokens());
  }

  @Test
  void allEarlierOccurrencesCount() {
    HeadStatistics all = of(new int[] {7, 7, 7}, P[0], P[1], P[2]);
    // query 1 repeats 0; query 2 repeats 0 and 1
    assertEquals((0.25 + (0.5 + 0.125)) / 2, score(all, HeadScore.DUPLICATE_TOKEN), EXACT);
    // what follows 0 is 1, which for query 1 is itself; what follows 0 and 1 are 1 and 2
    assertEquals((0.75 + (0.125 + 0.375)) / 2, score(all, HeadScore.INDUCTION), EXACT);
  }

  @Test
  void withoutAQueryThereIsNoScore() {
    HeadStatistics one = of(new int[] {7}, P[0]);
    for (HeadScore score : HeadScore.values()) {
      assertTrue(Double.isNaN(score(one, score)), score.key());
    }
    assertEquals(List.of(), one.edges(3, 1, false), "it had no choice");
    HeadStatistics different = of(new int[] {1, 2, 3, 4}, P);
    assertTrue(Double.isNaN(score(different, HeadScore.INDUCTION)));
    assertFalse(Double.isNaN(score(different, HeadScore.SELF)));
  }

  @Test
  void howARowIsSpread() {
    HeadStatistics all = HeadStatistics.ofText(LAYER, HEAD, false);
    all.tokens(1, 2, 3);
    float half = (float) (Math.log(3) / 2);
    all.spread(3, 1, 0, 0, new float[] {0, 0});
    all.spread(3, 1, 0, 1, new float[] {(float) Math.log(2), 0.5f});
    all.spread(3, 1, 0, 2, new float[] {half, 1.75f});
    assertEquals((Math.log(2) + half) / 3, score(all, HeadScore.ENTROPY), 1e-7);
    assertEquals(2.25 / 3, score(all, HeadScore.MEAN_DISTANCE), EXACT);
    // log 2 / log 2 = 1 and (log 3 / 2) / log 3 = 1/2; a single key has no log to divide by
    assertEquals(0.75, score(all, HeadScore.NORMALISED_ENTROPY), 1e-7);
  }

  /** [BOS] a b c a b c: L = 3, T = 7. */
  @Test
  void diagonalsOfRepeatedTokens() {
    float[][] induction = new float[7][7];
    float[][] duplicate = new float[7][7];
    for (int query = 0; query < 7; query++) {
      boolean again = query >= 4;
      induction[query][again ? query - 2 : query] = 1; // what followed it
      duplicate[query][again ? query - 3 : query] = 1;
    }
    HeadStatistics one = HeadStatistics.ofRepeated(3, LAYER, HEAD, false);
    one.tokens(9, 1, 2, 3, 1, 2, 3);
    feed(one, induction);
    // the diagonal -2 has 5 elements, queries 2..6, of which 4, 5, 6 are 1
    assertEquals(3.0 / 5, score(one, HeadScore.INDUCTION), EXACT);
    assertEquals(0, score(one, HeadScore.DUPLICATE_TOKEN), EXACT);
    HeadStatistics other = HeadStatistics.ofRepeated(3, LAYER, HEAD, false);
    other.tokens(9, 1, 2, 3, 1, 2, 3);
    feed(other, duplicate);
    // the diagonal -3 has 4, queries 3..6
    assertEquals(3.0 / 4, score(other, HeadScore.DUPLICATE_TOKEN), EXACT);
    assertEquals(0, score(other, HeadScore.INDUCTION), EXACT);
    assertEquals(0, score(other, HeadScore.PREVIOUS_TOKEN), EXACT);
    assertEquals(3, other.repeated());
    assertEquals(6, other.edges(3, 1, false).size(), "weights of 0 are no edges");
  }

  /** Tokens 0 and 1 have left: 7 8 [8 9 8], query 4. */
  @Test
  void afterASlideTheFirstTokenIsTheFirstThatIsLeft() {
    HeadStatistics all = HeadStatistics.ofText(LAYER, HEAD, false);
    all.tokens(7, 8, 8, 9, 8);
    all.spread(3, 1, 2, 4, new float[] {(float) Math.log(3), 1});
    all.row(3, 1, 2, 4, new float[] {0, 0, 0.5f, 0.375f, 0.125f});
    assertEquals(0.5, score(all, HeadScore.FIRST_TOKEN), EXACT);
    assertEquals(0.5, score(all, HeadScore.DUPLICATE_TOKEN), EXACT);
    assertEquals(0.375, score(all, HeadScore.INDUCTION), EXACT);
    assertEquals(1, score(all, HeadScore.NORMALISED_ENTROPY), 1e-7, "of 3 keys, not 5");
    assertEquals(List.of(new Edge(4, 3, 0.375f), new Edge(4, 4, 0.125f)), all.edges(3, 1, true));
    HeadStatistics forgotten = HeadStatistics.ofText(LAYER, HEAD, false);
    forgotten.tokens(7, 8, 9, 7);
    forgotten.row(3, 1, 2, 3, new float[] {0, 0, 0.5f, 0.5f});
    assertTrue(Double.isNaN(score(forgotten, HeadScore.DUPLICATE_TOKEN)), "7 is out of sight");
  }

  @Test
  void theHeaviestEdges() {
    HeadStatistics all = of(new int[] {7, 8, 7, 8}, P);
    // nine edges of queries 1 to 3, of which 3 -> 0 weighs least; the earlier first among equals
    assertEquals(
        List.of(
            new Edge(1, 1, 0.75f),
            new Edge(2, 0, 0.5f),
            new Edge(3, 2, 0.5f),
            new Edge(2, 2, 0.375f),
            new Edge(1, 0, 0.25f),
            new Edge(3, 1, 0.25f),
            new Edge(3, 3, 0.1875f),
            new Edge(2, 1, 0.125f)),
        all.edges(3, 1, false));
    assertEquals(
        List.of(
            new Edge(1, 1, 0.75f),
            new Edge(3, 2, 0.5f),
            new Edge(2, 2, 0.375f),
            new Edge(3, 1, 0.25f),
            new Edge(3, 3, 0.1875f),
            new Edge(2, 1, 0.125f)),
        all.edges(3, 1, true));
    assertEquals(List.of(), all.edgesByNorm(3, 1));
  }

  @Test
  void ofEqualEdgesTheEarlierComesFirst() {
    HeadStatistics all = HeadStatistics.ofText(LAYER, HEAD, false);
    int t = HeadStatistics.EDGES + 3;
    for (int query = 0; query < t; query++) {
      all.tokens(query);
      float[] row = new float[query + 1];
      row[query] = 0.5f;
      row[0] += 0.5f;
      all.row(3, 1, 0, query, row);
    }
    List<Edge> expected = new ArrayList<>();
    for (int query = 1; query <= HeadStatistics.EDGES; query++) {
      expected.add(new Edge(query, query, 0.5f));
    }
    assertEquals(expected, all.edges(3, 1, true));
    assertEquals(new Edge(1, 0, 0.5f), all.edges(3, 1, false).get(0));
    assertEquals(new Edge(1, 1, 0.5f), all.edges(3, 1, false).get(1));
  }

  @Test
  void attentionByWhatItReads() {
    HeadStatistics all = HeadStatistics.ofText(LAYER, HEAD, true);
    all.tokens(7, 8, 7, 8);
    float[] norms = {2, 1, 4, 0.5f};
    for (int i = 0; i < norms.length; i++) {
      all.value(3, 1, i, norms[i]);
    }
    feed(all, P);
    // rows times norms: [2], [0.5 0.75], [1 0.125 1.5], [0.125 0.25 2 0.09375]
    assertEquals((2 + 1.25 + 2.625 + 2.46875) / 4, score(all, HeadScore.WEIGHTED_NORM), EXACT);
    assertEquals(
        (0.5 / 1.25 + 1 / 2.625 + 0.125 / 2.46875) / 3,
        score(all, HeadScore.FIRST_TOKEN_BY_NORM),
        EXACT);
    assertEquals(
        List.of(new Edge(3, 2, 2), new Edge(2, 2, 1.5f), new Edge(2, 0, 1), new Edge(1, 1, 0.75f)),
        all.edgesByNorm(3, 1).subList(0, 4));
  }

  @Test
  void twoTextsTogether() {
    HeadStatistics all = of(new int[] {7, 8, 7, 8}, P);
    all.add(of(new int[] {7, 7, 7}, P[0], P[1], P[2]));
    // sums and counts of the tests above, added
    assertEquals((0.8125 + 0.75) / (3 + 2), score(all, HeadScore.FIRST_TOKEN), EXACT);
    assertEquals((0.75 + 0.875) / (2 + 2), score(all, HeadScore.DUPLICATE_TOKEN), EXACT);
    assertEquals(7, all.tokens());
    assertEquals(new Edge(5, 5, 0.75f), all.edges(3, 1, false).get(1), "4 tokens further on");
    all.tokens(8);
    all.row(3, 1, 0, 7, new float[] {0, 1, 0, 0, 0, 0, 0, 0});
    assertEquals((0.75 + 0.875) / (2 + 2), score(all, HeadScore.DUPLICATE_TOKEN), EXACT);
  }

  @Test
  void whatDoesNotBelongTogetherIsRefused() {
    HeadStatistics all = of(new int[] {7}, P[0]);
    assertThrows(IllegalArgumentException.class, () -> all.score(HeadScore.SELF, 2, 1));
    assertThrows(IllegalArgumentException.class, () -> all.edges(3, 0, false));
    for (HeadStatistics other :
        List.of(
            HeadStatistics.ofText(HEAD, HEAD, false),
            HeadStatistics.ofText(LAYER, LAYER, false),
            HeadStatistics.ofText(LAYER, HEAD, true),
            HeadStatistics.ofRepeated(2, LAYER, HEAD, false))) {
      assertThrows(IllegalArgumentException.class, () -> all.add(other));
    }
    assertThrows(
        IllegalArgumentException.class, () -> HeadStatistics.ofRepeated(0, LAYER, HEAD, false));
  }
}
