package dev.loupe.attention;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

/** Maps too large for memory, which lie in a temporary file. */
class LargeMapsTest {
  @Test
  void keepsRowsAndLeavesNoFile() throws Exception {
    int[] two = {0, 1};
    int tokens = 8300; // 2 x 2 maps of 138 MB each; the file is sparse
    AttentionMaps maps;
    try {
      maps = AttentionMaps.allocate(two, two, tokens);
    } catch (OutOfMemoryError e) { // which JUnit takes as the end of everything
      throw new AssertionError(e.getMessage(), e);
    }
    float[] row = new float[tokens];
    row[0] = 0.25f;
    row[tokens - 1] = 0.75f;
    maps.put(1, 1, tokens - 1, row);
    maps.put(0, 0, 0, new float[] {1});
    assertArrayEquals(row, maps.row(1, 1, tokens - 1));
    assertArrayEquals(new float[] {1}, maps.row(0, 0, 0));
    assertEquals(0, maps.row(1, 0, 5)[2]);
    AttentionMapsTest.noFileStays();
  }
}
