package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.Refusal;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;

/** Caches and rows to rebuild attention from, for each variant, element and width. */
abstract class AttentionMapFixture {
  /** A prefill of 65 rows, one decoding row, and a second chunk that begins inside a tile. */
  static final int[][] SEGMENTS = {{0, 65, 1, 0}, {65, 1, 0, 32}, {66, 34, 2, 99}};

  static final int ROWS = 100;
  static final int[] FILLED = {33, 65, 133};
  static final int CAPACITY = 140;

  static Gpu gpu;

  @BeforeAll
  static void open() {
    gpu = Emulator.open();
  }

  @AfterAll
  static void close() {
    gpu.close();
  }

  record Case(Variant variant, Element activations, Element cache, int d, boolean causal) {
    @Override
    public String toString() {
      return "%s %s %s/%s D %d %s"
          .formatted(
              variant.family(),
              variant.name(),
              activations.suffix(),
              cache.suffix(),
              d,
              causal ? "causal" : "full");
    }

    MapProblem problem(float spread) {
      CacheShape shape = new CacheShape(3, 3, CAPACITY, d);
      var host = new CachedAttention(shape, activations, cache, ROWS, FILLED, spread, 7 + d);
      host.copyKey(1, 3); // ties
      host.copyKey(1, 40);
      return new MapProblem(gpu, host, SEGMENTS, causal);
    }
  }

  static List<Case> cases(List<Variant> variants) {
    List<Case> cases = new ArrayList<>();
    for (Variant variant : variants) {
      for (Element cache : variant.elements().stream().sorted().toList()) {
        cases.add(new Case(variant, cache, cache, 64, true));
        cases.add(new Case(variant, cache, cache, 8, true));
        cases.add(new Case(variant, cache, cache, 80, false));
        cases.add(new Case(variant, cache, cache, 128, true));
        if (cache != Element.F32 && !variant.name().equals("v3")) {
          cases.add(new Case(variant, Element.F32, cache, 24, false));
        }
      }
    }
    return cases;
  }

  static void assertClose(double want, double got, double bound, String where) {
    assertTrue(
        Math.abs(got - want) <= bound, where + ": " + got + " for " + want + ", bound " + bound);
  }

  static void assertMessage(String part, Runnable what) {
    String message = Refusal.ofArguments(what);
    assertTrue(message.contains(part), message);
  }
}
