package dev.loupe.attention;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class AttentionMapsTest {
  /** Another JVM's file of maps is there for a moment too, until it is deleted. */
  static void noFileStays() throws IOException, InterruptedException {
    Path folder = Path.of(System.getProperty("java.io.tmpdir"));
    Set<Path> stay = new HashSet<>();
    for (int look = 0; look < 10 && (look == 0 || !stay.isEmpty()); look++) {
      try (Stream<Path> files = Files.list(folder)) {
        Set<Path> there =
            files
                .filter(f -> f.getFileName().toString().startsWith("loupe-attention-"))
                .collect(Collectors.toSet());
        if (look == 0) {
          stay.addAll(there);
        } else {
          stay.retainAll(there);
        }
      }
      if (!stay.isEmpty()) {
        Thread.sleep(100);
      }
    }
    assertEquals(Set.of(), stay);
  }

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
    noFileStays();
  }

  @Test
  void mapsThatNoDiskHoldsAreOutOfMemory() {
    int[] many = IntStream.range(0, 4000).toArray();
    OutOfMemoryError error =
        assertThrows(OutOfMemoryError.class, () -> AttentionMaps.allocate(many, many, 4000));
    assertTrue(String.valueOf(error.getMessage()).contains("fewer layers or heads"));
  }
}
