package dev.loupe.generate;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.attention.AttentionMaps;
import dev.loupe.attention.AttentionStatistics;
import dev.loupe.attention.HeadScore;
import dev.loupe.attention.HeadStatistics;

/** Comparisons of kept attention, row by row. */
public final class AttentionRows {
  private AttentionRows() {}

  private interface Row {
    void check(int layer, int head, int query);
  }

  private static void each(int[] layers, int[] heads, int tokens, Row row) {
    assertTrue(layers.length * heads.length * tokens > 0);
    for (int layer : layers) {
      for (int head : heads) {
        for (int query = 0; query < tokens; query++) {
          row.check(layer, head, query);
        }
      }
    }
  }

  public static void close(AttentionMaps expected, AttentionMaps actual, double tolerance) {
    assertArrayEquals(expected.layers(), actual.layers());
    assertArrayEquals(expected.heads(), actual.heads());
    assertEquals(expected.tokens(), actual.tokens());
    each(
        expected.layers(),
        expected.heads(),
        expected.tokens(),
        (layer, head, query) -> {
          float[] e = expected.row(layer, head, query);
          float[] a = actual.row(layer, head, query);
          assertEquals(query + 1, a.length);
          for (int key = 0; key <= query; key++) {
            assertEquals(e[key], a[key], tolerance, layer + "." + head + " " + query + " " + key);
          }
        });
  }

  /** Every score of every head. */
  public static void close(HeadStatistics expected, HeadStatistics actual, double tolerance) {
    assertArrayEquals(expected.layers(), actual.layers());
    assertArrayEquals(expected.heads(), actual.heads());
    for (int layer : expected.layers()) {
      for (int head : expected.heads()) {
        for (HeadScore score : HeadScore.values()) {
          double of = expected.score(score, layer, head);
          assertEquals(
              of,
              actual.score(score, layer, head),
              Double.isNaN(of) ? 0 : tolerance * Math.max(1, Math.abs(of)),
              score.key() + " of " + layer + "." + head);
        }
      }
    }
  }

  /** Statistics against the rows that they are of, summed in double. */
  public static void close(AttentionMaps maps, AttentionStatistics statistics, double tolerance) {
    assertArrayEquals(maps.layers(), statistics.layers());
    assertArrayEquals(maps.heads(), statistics.heads());
    assertEquals(maps.tokens(), statistics.tokens());
    each(
        maps.layers(),
        maps.heads(),
        maps.tokens(),
        (layer, head, query) -> {
          float[] row = maps.row(layer, head, query);
          double entropy = 0;
          double distance = 0;
          for (int key = 0; key <= query; key++) {
            entropy -= row[key] > 0 ? row[key] * Math.log(row[key]) : 0;
            distance += row[key] * (query - key);
          }
          String where = layer + "." + head + " " + query;
          assertEquals(entropy, statistics.entropy(layer, head, query), tolerance, where);
          assertEquals(
              distance,
              statistics.meanDistance(layer, head, query),
              tolerance * (query + 1),
              where);
          int[] keys = statistics.topKeys(layer, head, query);
          float[] weights = statistics.topWeights(layer, head, query);
          assertEquals(Math.min(statistics.top(), query + 1), keys.length, where);
          assertEquals(keys.length, weights.length);
          for (int i = 0; i < keys.length; i++) {
            assertEquals(row[keys[i]], weights[i], tolerance, where);
            row[keys[i]] = -1; // named once
            for (float left : row) {
              assertTrue(left <= weights[i] + tolerance, where);
            }
          }
        });
  }
}
