package dev.loupe.generate;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.attention.AttentionStatistics;
import java.util.List;

/** What a run among others must equal: the run that has the model to itself. */
final class SameGenerations {
  private SameGenerations() {}

  static void assertSame(List<Generation> expected, List<Generation> runs, String what) {
    assertEquals(expected.size(), runs.size(), what);
    for (int s = 0; s < runs.size(); s++) {
      String which = what + ", sample " + s;
      assertEquals(expected.get(s).tokens(), runs.get(s).tokens(), which); // odds too
      assertEquals(expected.get(s).text(), runs.get(s).text(), which);
      assertEquals(expected.get(s).finish(), runs.get(s).finish(), which);
      assertEquals(s, runs.get(s).sample(), which);
      assertEquals(expected.get(s).promptLength(), runs.get(s).promptLength(), which);
      assertEquals(
          expected.get(s).timing().decodeTokens(), runs.get(s).timing().decodeTokens(), which);
      assertEquals(expected.get(s).cropped(), runs.get(s).cropped(), which);
      assertSameAttention(expected.get(s), runs.get(s), which);
    }
  }

  /** Bit by bit. */
  private static void assertSameAttention(Generation expected, Generation run, String which) {
    assertEquals(expected.maps().isPresent(), run.maps().isPresent(), which);
    assertEquals(expected.scores().isPresent(), run.scores().isPresent(), which);
    assertEquals(expected.statistics().isPresent(), run.statistics().isPresent(), which);
    expected.maps().ifPresent(maps -> AttentionRows.close(maps, run.maps().orElseThrow(), 0));
    expected.scores().ifPresent(maps -> AttentionRows.close(maps, run.scores().orElseThrow(), 0));
    expected
        .headStatistics()
        .ifPresent(heads -> AttentionRows.close(heads, run.headStatistics().orElseThrow(), 0));
    for (int query = 0; query < expected.tokens().size(); query++) {
      int at = query;
      expected
          .rollout()
          .ifPresent(
              rollout ->
                  assertArrayEquals(rollout.row(at), run.rollout().orElseThrow().row(at), which));
      expected
          .statistics()
          .ifPresent(
              all -> {
                AttentionStatistics other = run.statistics().orElseThrow();
                for (int layer : all.layers()) {
                  for (int head : all.heads()) {
                    assertEquals(
                        all.entropy(layer, head, at), other.entropy(layer, head, at), which);
                    assertArrayEquals(
                        all.topKeys(layer, head, at), other.topKeys(layer, head, at), which);
                  }
                }
              });
    }
  }
}
