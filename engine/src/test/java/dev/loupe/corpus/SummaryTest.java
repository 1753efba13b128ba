package dev.loupe.corpus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.loupe.corpus.CorpusReport.Window;
import java.util.Arrays;
import java.util.Random;
import java.util.function.IntToDoubleFunction;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class SummaryTest {
  private static Quantiles of(double... values) {
    Summary summary = new Summary();
    Arrays.stream(values).forEach(summary::add);
    return summary.distribution();
  }

  private static double[] values(int count, IntToDoubleFunction value) {
    return IntStream.range(0, count).mapToDouble(value).toArray();
  }

  @Test
  void aFewByHand() {
    assertEquals(new Quantiles(1, 0.3, 0, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3), of(0.3));
    // 2 4 4 4 5 5 7 9: mean 5, variance 32 / 8; ranks 1, 2, 4, 6, 8
    assertEquals(
        new Quantiles(8, 5, 2, 2, 2, 4, 4, 5, 9, 9), of(9, 7, 5, 5, 4, 4, 4, 2), "any order");
    assertEquals(new Quantiles(4, 0, 0, 0, 0, 0, 0, 0, 0, 0), of(0, -0.0, 0, -0.0));
    assertEquals(-1, of(-2, -1, 3).p50());
    // of 1 to 100 the quantiles are ranks
    Quantiles hundred = of(values(100, i -> 100 - i));
    assertEquals(new Quantiles(100, 50.5, hundred.sd(), 1, 5, 25, 50, 75, 95, 100), hundred);
    assertEquals(Math.sqrt((100.0 * 100 - 1) / 12), hundred.sd(), 1e-14);
  }

  @Test
  void noNumberIsRefused() {
    assertThrows(IllegalArgumentException.class, () -> of(1, Double.NaN));
    assertThrows(IllegalArgumentException.class, () -> of(Double.NEGATIVE_INFINITY));
    assertThrows(IllegalStateException.class, Summary.class.cast(new Summary())::distribution);
  }

  @Test
  void smallDifferencesOfLargeValuesAreSeen() {
    Quantiles d = of(values(1000, i -> 1000 + (i % 2) * 1e-6));
    assertEquals(5e-7, d.sd(), 1e-12);
    assertEquals(1000 + 5e-7, d.mean(), 1e-12);
    assertEquals(0, of(values(999, i -> 0.1)).sd());
  }

  @Test
  void valuesThatOverflowFixedPointAreSummedToo() {
    Quantiles d = of(1e200, -1e200, 3, 1e15, -1e15);
    assertEquals(0.6, d.mean());
    assertEquals(Math.sqrt(0.4) * 1e200, d.sd(), 1e185);
    assertEquals(-1e12, of(values(3_000, i -> -1e12)).mean());
    assertEquals(2e9, of(values(3_000, i -> 2e9)).mean());
    assertEquals(5e19, of(1e20, 0).mean());
  }

  private static void quantilesAreNear(double[] values) {
    double[] sorted = values.clone();
    Arrays.sort(sorted);
    Quantiles d = of(values);
    int n = values.length;
    double[] expected = {
      sorted[0],
      sorted[(n * 5 + 99) / 100 - 1],
      sorted[(n * 25 + 99) / 100 - 1],
      sorted[(n * 50 + 99) / 100 - 1],
      sorted[(n * 75 + 99) / 100 - 1],
      sorted[(n * 95 + 99) / 100 - 1],
      sorted[n - 1]
    };
    double[] actual = {d.min(), d.p5(), d.p25(), d.p50(), d.p75(), d.p95(), d.max()};
    for (int i = 0; i < expected.length; i++) {
      assertEquals(expected[i], actual[i], 0.002 * Math.abs(expected[i]), "of " + i);
    }
    assertEquals(Arrays.stream(values).sum() / n, d.mean(), 1e-9);
  }

  @Test
  void quantilesOfManyAreWithinAFifthOfAPercent() {
    Random random = new Random(1);
    quantilesAreNear(values(50_000, i -> random.nextDouble()));
    quantilesAreNear(values(50_001, i -> random.nextGaussian()));
    quantilesAreNear(values(20_000, i -> Math.exp(5 * random.nextGaussian())));
    quantilesAreNear(values(Summary.EXACT + 1, i -> i == 0 ? 0 : random.nextDouble()));
  }

  @Test
  void anyOrderAndAnyPartsGiveTheSameBits() {
    for (int count : new int[] {5, 1000, 1024, 1025, 1500, 30_000}) {
      Random random = new Random(count);
      double[] values = values(count, i -> Math.exp(3 * random.nextGaussian()));
      Quantiles whole = of(values);
      for (int parts : new int[] {2, 7, 50}) {
        Summary[] summaries = new Summary[parts];
        Arrays.setAll(summaries, i -> new Summary());
        for (double value : values) {
          summaries[random.nextInt(parts)].add(value);
        }
        Summary all = new Summary();
        IntStream.range(0, parts).forEach(i -> all.merge(summaries[(i * 3 + 1) % parts]));
        assertEquals(count, all.distribution().count());
        assertEquals(whole, all.distribution(), count + " in " + parts);
      }
    }
  }

  @Test
  void outliersAreThoseOfTheFirstDocumentsAmongEquals() {
    ScoreSummary one = new ScoreSummary();
    ScoreSummary other = new ScoreSummary();
    for (int window : new int[] {2, 0, 1}) {
      for (String doc : new String[] {"c", "a", "b"}) {
        (window == 1 ? one : other).add(new Window(doc, window, 9, 0.5));
      }
    }
    other.add(new Window("z", 0, 9, 0.75));
    one.add(new Window("y", 0, 9, 0.25));
    CorpusReport.Score score = one.merge(other).score();
    assertEquals("[y.0, a.0, a.1]", names(score.lowest()));
    assertEquals("[z.0, a.0, a.1]", names(score.highest()));
    assertEquals(11, score.distribution().count());
  }

  private static String names(java.util.List<Window> windows) {
    return windows.stream().map(w -> w.docId() + "." + w.window()).toList().toString();
  }
}
