package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.KernelChoice;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.emulator.Schedules;
import dev.loupe.cuda.kernels.AttentionMapKernels.Cells;
import dev.loupe.cuda.kernels.AttentionMapKernels.Layout;
import dev.loupe.cuda.kernels.AttentionMapKernels.Selection;
import dev.loupe.cuda.kernels.AttentionMapKernels.Statistics;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

@OnDevice
@Tag("gpu")
class AttentionMapKernelsTest extends AttentionMapFixture {
  static Stream<Case> maps() {
    return cases(AttentionMapKernels.MAPS).stream();
  }

  static Stream<Case> causalMaps() {
    return maps().filter(Case::causal);
  }

  static Stream<Case> usualMaps() {
    return maps().filter(c -> c.d() == 64);
  }

  private static float[] map(
      Variant variant, MapProblem a, Selection want, Cells cells, Layout layout, Element stored) {
    long stride =
        switch (layout) {
          case Layout.Dense(int columns) -> (long) want.rows() * columns;
          case Layout.Packed(int _, long headStride) -> headStride;
        };
    DeviceBuffer out = a.poisoned(stored, want.headCount() * stride);
    a.kernels.map(variant, a.source(), want, cells, layout, out);
    float[] values = new float[(int) out.elements()];
    out.download(values);
    return values;
  }

  private static void compareDense(
      MapProblem a,
      int[] heads,
      int first,
      int rows,
      int columns,
      Cells cells,
      Element stored,
      float[] got) {
    for (int h = 0; h < heads.length; h++) {
      for (int row = first; row < first + rows; row++) {
        CachedAttention.Row want = a.row(row, heads[h]);
        for (int key = 0; key < columns; key++) {
          float x = got[(h * rows + row - first) * columns + key];
          String where = "head %d, row %d, key %d".formatted(heads[h], row, key);
          if (key >= want.p.length) {
            assertEquals(cells == Cells.SCORES ? Float.NEGATIVE_INFINITY : 0f, x, where);
          } else if (cells == Cells.SCORES) {
            double bound =
                want.scoreError[key]
                    + CachedAttention.roundingOf(stored) * Math.abs(want.score[key]);
            assertClose(want.score[key], x, bound + 0x1p-25, where);
          } else {
            assertClose(want.p[key], x, want.pError(key, stored), where);
          }
        }
      }
    }
  }

  @ParameterizedTest
  @MethodSource("maps")
  void equalsTheReference(Case c) {
    Schedules.forward();
    try (MapProblem a = c.problem(1)) {
      int[] heads = {2, 0};
      for (Cells cells : Cells.values()) {
        Element stored = cells == Cells.SCORES == (c.d() == 64) ? Element.F32 : Element.F16;
        int first = 3;
        int rows = ROWS - 5;
        Selection want = a.select(heads, first, rows);
        float[] got = map(c.variant(), a, want, cells, new Layout.Dense(135), stored);
        compareDense(a, heads, first, rows, 135, cells, stored, got);
      }
    }
  }

  @ParameterizedTest
  @MethodSource("usualMaps")
  void aLongSequenceEqualsTheReference(Case c) {
    Schedules.forward();
    CacheShape shape = new CacheShape(1, 1, 520, c.d());
    var host = new CachedAttention(shape, c.activations(), c.cache(), 513, new int[] {513}, 1, 3);
    try (MapProblem a = new MapProblem(gpu, host, new int[][] {{0, 513, 0, 0}}, true)) {
      int[] heads = {0};
      Selection want = a.select(heads, 0, 513);
      Layout layout = new Layout.Dense(513);
      float[] got = map(c.variant(), a, want, Cells.PROBABILITIES, layout, Element.F32);
      compareDense(a, heads, 0, 513, 513, Cells.PROBABILITIES, Element.F32, got);
    }
  }

  @ParameterizedTest
  @MethodSource("usualMaps")
  void standsLargeScores(Case c) {
    Schedules.forward();
    try (MapProblem a = c.problem(30)) {
      Selection want = a.select(new int[] {1}, 0, ROWS);
      Layout layout = new Layout.Dense(133);
      float[] got = map(c.variant(), a, want, Cells.PROBABILITIES, layout, Element.F32);
      compareDense(a, new int[] {1}, 0, ROWS, 133, Cells.PROBABILITIES, Element.F32, got);
    }
  }

  @ParameterizedTest
  @MethodSource("usualMaps")
  void rowsSumToOneAndSchedulesAgree(Case c) {
    try (MapProblem a = c.problem(1)) {
      Schedules.forward();
      Selection want = a.select(new int[] {0}, 0, ROWS);
      Layout layout = new Layout.Dense(133);
      float[] got = map(c.variant(), a, want, Cells.PROBABILITIES, layout, Element.F32);
      for (int row = 0; row < ROWS; row++) {
        double sum = 0;
        for (int key = 0; key < 133; key++) {
          sum += got[row * 133 + key];
        }
        assertEquals(1, sum, 1e-5, "row " + row);
      }
      for (Runnable schedule : Schedules.others()) {
        schedule.run();
        assertArrayEquals(got, map(c.variant(), a, want, Cells.PROBABILITIES, layout, Element.F32));
      }
    }
  }

  @ParameterizedTest
  @MethodSource("causalMaps")
  void packedHasTheSameCellsWithoutTheUpperTriangle(Case c) {
    Schedules.forward();
    try (MapProblem a = c.problem(1)) {
      int first = 2;
      int rows = ROWS - 3;
      Selection want = a.select(new int[] {1, 2}, first, rows);
      Layout dense = new Layout.Dense(133);
      float[] cells = map(c.variant(), a, want, Cells.SCORES, dense, Element.F16);
      long entries = 0;
      for (int row = first; row < first + rows; row++) {
        entries += a.keys(row);
      }
      Layout layout = new Layout.Packed(133, entries + 5);
      float[] packed = map(c.variant(), a, want, Cells.SCORES, layout, Element.F16);
      int at = 0;
      for (int h = 0; h < 2; h++) {
        for (int row = 0; row < rows; row++) {
          for (int key = 0; key < a.keys(first + row); key++) {
            assertEquals(cells[(h * rows + row) * 133 + key], packed[at++], "row " + row);
          }
        }
        for (int gap = 0; gap < 5; gap++) {
          assertTrue(Float.isNaN(packed[at++]), "written between heads");
        }
      }
    }
  }

  @Test
  void packedEntriesOfOneSequenceFollowTheTriangle() {
    assertEquals(1, AttentionMapKernels.packedEntries(0, 1));
    assertEquals(6, AttentionMapKernels.packedEntries(0, 3));
    assertEquals(8 + 9, AttentionMapKernels.packedEntries(7, 2));
    assertEquals(0, AttentionMapKernels.packedEntries(7, 0));
    long n = Integer.MAX_VALUE;
    assertEquals(n * (n + 1) / 2, AttentionMapKernels.packedEntries(0, Integer.MAX_VALUE));
  }

  @ParameterizedTest
  @MethodSource("usualMaps")
  void headsAndSegmentsOutsideTheCacheAreNaN(Case c) {
    Schedules.forward();
    try (MapProblem a = c.problem(1)) {
      int[] heads = {0, 3, -1};
      // good, no such sequence, past the capacity, before the start; rows 40 .. 49 are in none
      var source = a.source(0, 10, 1, 0, 10, 10, 3, 0, 20, 10, 2, 131, 30, 10, 0, -1);
      DeviceBuffer out = a.poisoned(Element.F32, 3 * 40 * 60);
      out.upload(new float[3 * 40 * 60]);
      Selection want = a.select(heads, 0, 40);
      a.kernels.map(c.variant(), source, want, Cells.SCORES, new Layout.Dense(60), out);
      float[] got = new float[3 * 40 * 60];
      out.download(got);
      for (int i = 0; i < got.length; i++) {
        boolean good = i < 10 * 60;
        assertEquals(!good, Float.isNaN(got[i]), "cell " + i);
      }
      DeviceBuffer packed = a.poisoned(Element.F32, 3 * 100);
      packed.upload(new float[300]);
      a.kernels.map(c.variant(), source, want, Cells.SCORES, new Layout.Packed(140, 100), packed);
    }
  }

  @Test
  void variantsFollowRowsAndElements() {
    CacheShape shape = new CacheShape(1, 1, 8, 8);
    var floats = new AttentionMapKernels(gpu, shape, Element.F32, Element.F32);
    var mixed = new AttentionMapKernels(gpu, shape, Element.F32, Element.F16);
    var halves = new AttentionMapKernels(gpu, shape, Element.F16, Element.F16);
    assertEquals("v1", halves.mapVariant(8, 8).name());
    assertEquals("v2", floats.mapVariant(64, 1).name());
    assertEquals("v2", mixed.mapVariant(64, 1).name());
    assertEquals("v1", floats.statisticsVariant(1, 1).name());
    assertEquals("v2", mixed.statisticsVariant(1024, 1).name());
    try {
      gpu.use(Serving.PLAIN);
      assertEquals("v0", halves.mapVariant(8, 8).name());
      assertEquals("v0", mixed.statisticsVariant(1024, 1).name());
    } finally {
      gpu.use(KernelChoice.UNTRIED);
    }
    if (gpu.computeCapability() >= 80) {
      assertEquals("v3", halves.mapVariant(64, 1).name());
      assertEquals("v3", halves.statisticsVariant(64, 1).name());
    }
  }

  @Test
  void refusesWhatItCannotDo() {
    Variant v1 = AttentionMapKernels.MAPS.get(1);
    Variant other = AttentionMapKernels.STATISTICS.getFirst();
    try (MapProblem a = new Case(v1, Element.F32, Element.F16, 8, false).problem(1)) {
      DeviceBuffer out = a.poisoned(Element.F32, 40);
      DeviceBuffer bad = a.poisoned(Element.BF16, 40);
      Layout wide = new Layout.Dense(21);
      Layout fits = new Layout.Dense(20);
      Layout packed = new Layout.Packed(20, 40);
      Selection two = a.select(new int[] {0}, 0, 2);
      assertMessage(
          "map has 40 elements, needs 42",
          () -> a.kernels.map(v1, a.source(), two, Cells.SCORES, wide, out));
      assertMessage("bf16", () -> a.kernels.map(v1, a.source(), two, Cells.SCORES, fits, bad));
      assertMessage("causal", () -> a.kernels.map(v1, a.source(), two, Cells.SCORES, packed, out));
      assertMessage(
          "is not one of attention_map",
          () -> a.kernels.map(other, a.source(), two, Cells.SCORES, wide, out));
      Variant v3 = AttentionMapKernels.MAPS.getLast();
      assertMessage(
          "not f32 and f16", () -> a.kernels.map(v3, a.source(), two, Cells.SCORES, fits, out));
      Selection late = a.select(new int[] {0}, ROWS - 1, 2);
      assertMessage("qkv has", () -> a.kernels.map(v1, a.source(), late, Cells.SCORES, fits, out));
      DeviceBuffer odd = a.poisoned(Element.F32, 44).slice(1, 40);
      assertMessage(
          "map starts at an address that is no multiple of 16",
          () -> a.kernels.map(v1, a.source(), two, Cells.SCORES, fits, odd));
      Selection before = a.select(new int[] {0}, -1, 2);
      assertMessage(
          "-1, not in", () -> a.kernels.map(v1, a.source(), before, Cells.SCORES, fits, out));
      assertMessage(
          "17, not in 1 .. 16",
          () ->
              a.kernels.statistics(other, a.source(), two, new Statistics(out, out, out, out, 17)));
      assertMessage(
          "top keys holds F32, not I32",
          () ->
              a.kernels.statistics(other, a.source(), two, new Statistics(out, out, out, out, 16)));
    }
  }
}
