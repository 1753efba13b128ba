package dev.loupe.serve.workbench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Loupe;
import dev.loupe.generate.ReadRequest;
import dev.loupe.interpret.ActivationCache;
import dev.loupe.ops.Mask;
import dev.loupe.serve.Served;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Which runs are kept, and what was made of them. */
@Timeout(200)
class RunsTest {
  private static Loupe loupe;

  @BeforeAll
  static void open() throws IOException {
    loupe = Served.demo();
  }

  @AfterAll
  static void close() {
    loupe.close();
  }

  @Test
  void whatWasUsedLeastGoesFirst() throws Exception {
    try (Runs runs = new Runs(0)) {
      runs.look(
          all -> {
            for (String name : List.of("a", "b")) {
              all.keep(kept(name));
            }
            assertTrue(all.has("a") && all.has("b"), "two stay whatever their size");
            assertEquals("a", all.run("a").id());
            all.keep(kept("c"));
            assertTrue(all.has("a") && all.has("c") && !all.has("b"));
            return true;
          });
    }
    try (Runs runs = new Runs(3 * kept("x").cache().bytes())) {
      runs.look(
          all -> {
            for (String name : List.of("a", "b", "c", "d")) {
              all.keep(kept(name));
            }
            assertTrue(!all.has("a") && all.has("b") && all.has("c") && all.has("d"));
            Runs.Run before = all.run("d");
            all.keep(kept("d"));
            assertTrue(all.has("b") && all.has("d"), "the same name takes no more room");
            assertThrows(IllegalStateException.class, () -> before.cache().row(0, 0, 0));
            return true;
          });
    }
  }

  private static Runs.Run kept(String name) {
    return new Runs.Run(
        name,
        new RunSpec(List.of(1, 2), 2, List.of(), 0, Mask.CAUSAL),
        loupe.cache(ReadRequest.ids(1, 2)));
  }

  @Test
  void runsThatCameTooLateAreLetGo() throws Exception {
    Runs runs = new Runs(1 << 20);
    runs.close();
    Runs.Run late = kept("late");
    runs.look(
        all -> {
          all.keep(late);
          assertFalse(all.has("late"));
          return true;
        });
    assertThrows(IllegalStateException.class, () -> late.cache().row(0, 0, 0));
  }

  private static Runs.Run kept(int tokens) {
    int[] ids = new int[tokens];
    ActivationCache cache = loupe.cache(ReadRequest.ids(ids));
    List<Integer> all = new ArrayList<>();
    for (int id : ids) {
      all.add(id);
    }
    RunSpec spec = new RunSpec(all, tokens, List.of(), 0, Mask.CAUSAL);
    return new Runs.Run("run" + tokens, spec, cache);
  }

  @Test
  void answersCountInWhatIsKept() throws Exception {
    Runs.Run a = kept(5);
    Runs.Run b = kept(6);
    Runs.Run c = kept(7);
    long caches = a.cache().bytes() + b.cache().bytes() + c.cache().bytes();
    try (Runs runs = new Runs(caches + 3_000_000)) {
      runs.look(
          all -> {
            all.keep(a);
            all.keep(b);
            all.keep(c);
            assertEquals(caches, all.bytes());
            all.keep(c, Runs.with(b), "x".repeat(1_000_000));
            all.keep(c, Runs.with(a), "x".repeat(100_000));
            assertTrue(all.has(a.id()));
            assertTrue(all.answer(c, Runs.with(a)).isPresent());
            assertTrue(all.bytes() > caches + 2_200_000, "two bytes a character");
            all.keep(b, "stats", "x".repeat(600_000));
            assertFalse(all.has(a.id()), "the one used least made room");
            assertTrue(all.answer(c, Runs.with(a)).isEmpty(), "what was made of it has gone");
            assertTrue(all.answer(c, Runs.with(b)).isPresent());
            all.keep(a, "stats", "x"); // too late
            assertTrue(all.answer(a, "stats").isEmpty());
            all.keep(b, "more", "x".repeat(9_000_000));
            assertTrue(all.has(b.id()) && all.has(c.id()), "two are kept whatever their size");
            return true;
          });
    }
  }
}
