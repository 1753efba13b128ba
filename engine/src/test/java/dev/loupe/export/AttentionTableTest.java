package dev.loupe.export;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.attention.AttentionMaps;
import dev.loupe.generate.Generation;
import java.io.IOException;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class AttentionTableTest {
  private static Generation threeTokens() {
    AttentionMaps maps = AttentionMaps.allocate(new int[] {1, 3}, new int[] {2}, 3);
    for (int layer : new int[] {1, 3}) {
      maps.put(layer, 2, 0, new float[] {1});
    }
    maps.put(1, 2, 1, new float[] {0.25f, 0.75f});
    maps.put(3, 2, 1, new float[] {0.75f, 0.25f});
    maps.put(1, 2, 2, new float[] {0.0008f, 0.0992f, 0.9f});
    maps.put(3, 2, 2, new float[] {0, 0.5f, 0.5f});
    return Runs.run(Runs.tokens(2, "·the", "·\uD55C\uAD6D", "ok"), 2, maps, Optional.empty());
  }

  @Test
  void averagesOverLayersAndHeadsBestFirstEarlierFirstAmongEquals() {
    assertEquals(
        """
        what each token reads most: average of layers 1, 3, head 2
        ·the  0  ·the  0  1.000
        ·한국 1  ·the  0  0.500  ·한국 1  0.500
        -- generated --
        ok    2  ok    2  0.700  ·한국 1  0.300  ·the  0 <0.001
        """,
        AttentionTable.render(threeTokens(), 3, 80));
  }

  @Test
  void headsThatDifferMostFirst() {
    AttentionMaps maps = AttentionMaps.allocate(new int[] {0}, new int[] {0, 1, 2}, 3);
    float[][][] rows = {
      {{1}, {1, 0}, {0.9f, 0.1f, 0}}, // rests on the first token
      {{1}, {0.5f, 0.5f}, {0.25f, 0.25f, 0.5f}},
      {{1}, {0.25f, 0.75f}, {0, 0.875f, 0.125f}}
    };
    for (int head = 0; head < 3; head++) {
      for (int query = 0; query < 3; query++) {
        maps.put(0, head, query, rows[head][query]);
      }
    }
    Generation run = Runs.run(Runs.tokens(3, "a", "b", "c"), 3, maps, Optional.empty());
    assertEquals(
        """
        what each token reads most, in the 2 of 3 heads that differ most
        from the average:
                 head 0.2        head 0.1
        a     0  a     0  1.000  a     0  1.000
        b     1  b     1  0.750  a     0  0.500
        c     2  b     1  0.875  c     2  0.500
        """,
        AttentionTable.renderHeads(run, 2, 80));
    Generation one = Runs.random(new int[] {4}, new int[] {2}, 1, false, "");
    assertEquals(AttentionTable.render(one, 3, 80), AttentionTable.renderHeads(one, 4, 80));
    assertThrows(IllegalArgumentException.class, () -> AttentionTable.renderHeads(run, 0, 80));
  }

  @Test
  void oneHeadIsNamed() {
    Generation run = Runs.random(new int[] {4}, new int[] {2}, 1, false, "");
    assertEquals(
        "what each token reads most: head 4.2\n      0        0  1.000\n",
        AttentionTable.render(run, 5, 80));
  }

  @ParameterizedTest
  @CsvSource({"80, 3", "40, 3", "35, 1", "40, 10", "200, 3", "60, 5"})
  void linesKeepWithinTheTerminal(int columns, int top) throws IOException {
    for (Generation run :
        new Generation[] {
          Runs.golden("unicode"),
          Runs.random(new int[] {0, 1, 5}, new int[] {0, 1, 7}, 9, false, Runs.labels(303))
        }) {
      for (String line : AttentionTable.renderHeads(run, 4, columns).split("\n", -1)) {
        assertTrue(TerminalText.width(line) <= columns, line);
      }
      String table = AttentionTable.render(run, top, columns);
      int weights = 0;
      for (String line : table.split("\n", -1)) {
        assertTrue(TerminalText.width(line) <= columns, line);
        weights += line.split("\\d [ <]\\d\\.\\d{3}", -1).length - 1;
      }
      assertFalse(table.contains("0.000"), table);
      int t = run.tokens().size();
      int expected = 0;
      for (int query = 0; query < t; query++) {
        expected += Math.min(top, query + 1);
      }
      assertEquals(expected, weights);
    }
  }

  @Test
  void narrowTerminalsContinueBelow() {
    assertEquals(
        """
        what each token reads most:
        average of layers 1, 3, head 2
        ·the  0  ·the  0  1.000
        ·한국 1  ·the  0  0.500
                 ·한국 1  0.500
        -- generated --
        ok    2  ok    2  0.700
                 ·한국 1  0.300
                 ·the  0 <0.001
        """,
        AttentionTable.render(threeTokens(), 3, 35));
  }

  @Test
  void badSizesAreRefused() {
    assertThrows(IllegalArgumentException.class, () -> AttentionTable.render(threeTokens(), 0, 80));
    assertThrows(IllegalArgumentException.class, () -> AttentionTable.render(threeTokens(), 3, 0));
  }

  @ParameterizedTest
  @CsvSource({"abc, 3", "한국, 4", "e\u0301, 1", "😀, 2", "€·…, 3", "'', 0", "\u200B, 6"})
  void widths(String text, int columns) {
    assertEquals(columns, TerminalText.width(text));
  }

  @Test
  void controlsCannotReachTheTerminal() {
    assertEquals("U+001B[31mU+202Ex", TerminalText.safe("\u001B[31m\u202Ex"));
  }

  @Test
  void whatIsTooLongIsCutAndPaddedToWidth() {
    assertEquals("abc… ".strip(), TerminalText.fit("abcdef", 4));
    assertEquals("한… ", TerminalText.fit("한국어", 4)); // a half character would not fit
    assertEquals("ab  ", TerminalText.fit("ab", 4));
  }
}
