package dev.loupe.attention;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.api.Test;

class AttentionRolloutTest {
  /**
   * Two layers of two heads. The means are A1 = [1], [1/2 1/2], [0 1/2 1/2] and A2 = [1], [0 1],
   * [1/2 1/2 0]; with the residual, [1], [1/4 3/4], [0 1/4 3/4] and [1], [0 1], [1/4 1/4 1/2]. Row
   * 2 of the product, layer 2 on the left, is 1/4 [1 0 0] + 1/4 [1/4 3/4 0] + 1/2 [0 1/4 3/4].
   */
  @Test
  void threeTokensThroughTwoLayers() {
    float[][][][] heads = {
      {{{1}, {1, 0}, {0, 1, 0}}, {{1}, {0, 1}, {0, 0, 1}}},
      {{{1}, {0, 1}, {1, 0, 0}}, {{1}, {0, 1}, {0, 1, 0}}}
    };
    AttentionRollout rollout = AttentionRollout.allocate(2, 2, 5);
    for (int layer = 0; layer < 2; layer++) {
      for (int head = 0; head < 2; head++) {
        for (int query = 0; query < 3; query++) {
          rollout.put(layer, query, heads[layer][head][query]);
        }
      }
    }
    assertArrayEquals(new float[] {1}, rollout.row(0));
    assertArrayEquals(new float[] {0.25f, 0.75f}, rollout.row(1));
    assertArrayEquals(new float[] {0.3125f, 0.3125f, 0.375f}, rollout.row(2));
    AttentionRollout first = rollout.first(2);
    assertEquals(2, first.tokens());
    assertArrayEquals(new float[] {0.25f, 0.75f}, first.row(1));
    assertThrows(IllegalArgumentException.class, () -> first.row(2));
    assertThrows(IllegalArgumentException.class, () -> first.row(-1));
    assertThrows(IllegalArgumentException.class, () -> rollout.first(6));
    assertThrows(IllegalArgumentException.class, () -> AttentionRollout.allocate(1, 1, 40_000));
  }
}
