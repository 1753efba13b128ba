package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.emulator.Schedules;
import dev.loupe.cuda.kernels.AttentionMapKernels.Selection;
import dev.loupe.cuda.kernels.AttentionMapKernels.Statistics;
import java.util.Arrays;
import java.util.Comparator;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

@OnDevice
@Tag("gpu")
class AttentionStatisticsKernelsTest extends AttentionMapFixture {
  static Stream<Case> statistics() {
    return cases(AttentionMapKernels.STATISTICS).stream();
  }

  static Stream<Case> usualStatistics() {
    return statistics().filter(c -> c.d() == 64);
  }

  /** The smallest heads, the usual ones, and the largest. */
  static Stream<Case> someStatistics() {
    return statistics().filter(c -> c.d() == 8 || c.d() == 64 || c.d() == 128);
  }

  static Stream<Case> otherStatistics() {
    return statistics().filter(c -> c.d() != 8 && c.d() != 64 && c.d() != 128);
  }

  /** What came back. */
  private static final class Found {
    final float[] entropy;
    final float[] distance;
    final int[] keys;
    final float[] p;

    Found(int n, int k) {
      entropy = new float[n];
      distance = new float[n];
      keys = new int[n * k];
      p = new float[n * k];
    }
  }

  private static Found statistics(Variant variant, MapProblem a, Selection want, int k) {
    int n = want.headCount() * want.rows();
    DeviceBuffer entropy = a.poisoned(Element.F32, n);
    DeviceBuffer distance = a.poisoned(Element.F32, n);
    DeviceBuffer keys = a.poisoned(Element.I32, (long) n * k);
    keys.fill((byte) 0x77);
    DeviceBuffer p = a.poisoned(Element.F32, (long) n * k);
    a.kernels.statistics(variant, a.source(), want, new Statistics(entropy, distance, keys, p, k));
    Found found = new Found(n, k);
    entropy.download(found.entropy);
    distance.download(found.distance);
    keys.download(found.keys);
    p.download(found.p);
    return found;
  }

  @ParameterizedTest
  @MethodSource("someStatistics")
  void statisticsEqualTheReference(Case c) {
    compareAll(c);
  }

  @ParameterizedTest
  @MethodSource("otherStatistics")
  @Tag("sweep")
  void statisticsOfHeadsOfAnySizeEqualTheReference(Case c) {
    compareAll(c);
  }

  private static void compareAll(Case c) {
    try (MapProblem a = c.problem(c.d() == 64 ? 20 : 1)) {
      int[] heads = {2, 0};
      int first = 1;
      int rows = ROWS - 3;
      for (int k : new int[] {1, 5, 16}) {
        Schedules.forward();
        Selection want = a.select(heads, first, rows);
        Found found = statistics(c.variant(), a, want, k);
        for (int i = 0; i < heads.length * rows; i++) {
          int row = first + i % rows;
          compare(a, found, i, row, heads[i / rows], k);
        }
        if (k == 5 && (c.d() == 64 || c.d() == 8)) {
          for (Runnable schedule : Schedules.others()) {
            schedule.run();
            Found again = statistics(c.variant(), a, want, k);
            assertArrayEquals(found.entropy, again.entropy);
            assertArrayEquals(found.distance, again.distance);
            assertArrayEquals(found.keys, again.keys);
            assertArrayEquals(found.p, again.p);
          }
        }
      }
    }
  }

  private static void compare(MapProblem a, Found found, int i, int row, int head, int k) {
    CachedAttention.Row want = a.row(row, head);
    String where = "head %d, row %d, ".formatted(head, row);
    assertClose(want.entropy(), found.entropy[i], want.entropyError(), where + "entropy");
    int position = a.position(row);
    double distance = want.distance(position);
    assertClose(distance, found.distance[i], want.distanceError(position), where + "distance");
    int[] order =
        IntStream.range(0, want.p.length)
            .boxed()
            .sorted(Comparator.<Integer>comparingDouble(key -> -want.score[key]))
            .mapToInt(Integer::intValue)
            .toArray();
    for (int rank = 0; rank < k; rank++) {
      int key = found.keys[i * k + rank];
      float p = found.p[i * k + rank];
      if (rank >= order.length) {
        assertEquals(-1, key, where);
        assertEquals(0f, p, where);
        continue;
      }
      // two scores may change places if f32 cannot tell them apart; equal ones may not
      if (key != order[rank]) {
        assertTrue(key >= 0 && key < order.length, where + "rank " + rank + " is key " + key);
        double gap = Math.abs(want.score[key] - want.score[order[rank]]);
        double bound = want.scoreError[key] + want.scoreError[order[rank]];
        assertTrue(gap > 0 && gap <= bound, where + "rank " + rank + " is key " + key);
      }
      assertClose(want.p[key], p, want.pError(key, Element.F32), where + "rank " + rank);
    }
    int[] keys = Arrays.copyOfRange(found.keys, i * k, i * k + Math.min(k, order.length));
    assertEquals(keys.length, Arrays.stream(keys).distinct().count(), where + "a key twice");
  }

  @ParameterizedTest
  @MethodSource("usualStatistics")
  void statisticsOutsideTheCacheAreNaN(Case c) {
    Schedules.forward();
    try (MapProblem a = c.problem(1)) {
      DeviceBuffer sums = a.floats(Element.F32, new float[2 * 20]);
      DeviceBuffer distances = a.floats(Element.F32, new float[2 * 20]);
      DeviceBuffer keys = a.poisoned(Element.I32, 2 * 20 * 2);
      keys.upload(new int[80]);
      DeviceBuffer p = a.floats(Element.F32, new float[80]);
      var source = a.source(0, 10, 1, 0, 10, 10, 3, 0);
      Statistics out = new Statistics(sums, distances, keys, p, 2);
      a.kernels.statistics(c.variant(), source, a.select(new int[] {0, 3}, 0, 20), out);
      float[] values = new float[40];
      sums.download(values);
      int[] found = new int[80];
      keys.download(found);
      for (int i = 0; i < 40; i++) {
        assertEquals(i >= 10, Float.isNaN(values[i]), "row " + i);
        assertEquals(i >= 10, found[2 * i] == -1, "row " + i);
      }
    }
  }
}
