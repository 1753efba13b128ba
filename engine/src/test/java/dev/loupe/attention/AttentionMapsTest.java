package dev.loupe.attention;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class AttentionMapsTest {
  private static float[] row(int layer, int head, int query) {
    float[] row = new float[query + 1];
    for (int k = 0; k <= query; k++) {
      row[k] = layer * 1e6f + head * 1e4f + query * 100 + k;
    }
    return row;
  }

  @Test
  void everyRowHasAPlaceOfItsOwn() {
    int[] layers = {1, 4};
    int[] heads = {0, 2, 3};
    AttentionMaps maps = AttentionMaps.allocate(layers, heads, 9);
    for (int q = 8; q >= 0; q--) {
      for (int l : layers) {
        for (int h : heads) {
          maps.put(l, h, q, Arrays.copyOf(row(l, h, q), 9)); // what follows the row is not stored
        }
      }
    }
    AttentionMaps five = maps.first(5);
    assertEquals(5, five.tokens());
    for (int l : layers) {
      for (int h : heads) {
        for (int q = 0; q < 9; q++) {
          assertArrayEquals(row(l, h, q), maps.row(l, h, q));
          if (q < 5) {
            assertArrayEquals(row(l, h, q), five.row(l, h, q));
          }
        }
      }
    }
    assertThrows(IllegalArgumentException.class, () -> five.row(1, 0, 5));
    assertThrows(IllegalArgumentException.class, () -> maps.row(2, 0, 0));
    assertThrows(IllegalArgumentException.class, () -> maps.row(1, 1, 0));
    assertThrows(IllegalArgumentException.class, () -> maps.row(1, 0, -1));
    assertThrows(IllegalArgumentException.class, () -> maps.put(1, 0, 9, new float[10]));
    assertThrows(IndexOutOfBoundsException.class, () -> maps.put(1, 0, 3, new float[3]));
    assertThrows(IllegalArgumentException.class, () -> maps.first(10));
  }

  /** All 144 heads of GPT-2 over 1,024 tokens: 302 MB, in a file that nobody has to clean up. */
  @Test
  void largeMapsLeaveNoFileBehind() throws Exception {
    int[] twelve = IntStream.range(0, 12).toArray();
    AttentionMaps maps = AttentionMaps.allocate(twelve, twelve, 1024);
    assertArrayEquals(new float[1024], maps.row(11, 11, 1023));
    maps.put(11, 11, 1023, row(11, 11, 1023));
    maps.put(0, 0, 0, row(0, 0, 0));
    assertArrayEquals(row(11, 11, 1023), maps.row(11, 11, 1023));
    try (Stream<Path> files = Files.list(Path.of(System.getProperty("java.io.tmpdir")))) {
      List<Path> left =
          files.filter(f -> f.getFileName().toString().startsWith("loupe-attention-")).toList();
      assertTrue(left.isEmpty(), left.toString());
    }
  }

  @Test
  void mapsThatNoDiskHoldsAreOutOfMemory() {
    int[] many = IntStream.range(0, 4000).toArray();
    OutOfMemoryError error =
        assertThrows(OutOfMemoryError.class, () -> AttentionMaps.allocate(many, many, 4000));
    assertTrue(String.valueOf(error.getMessage()).contains("fewer layers or heads"));
  }
}
