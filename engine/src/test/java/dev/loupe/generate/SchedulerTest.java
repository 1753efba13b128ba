package dev.loupe.generate;

import static dev.loupe.generate.SameGenerations.assertSame;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.generate.Generation.Finish;
import dev.loupe.model.Golden;
import dev.loupe.model.Interventions;
import dev.loupe.sampling.NotFiniteException;
import dev.loupe.sampling.Sampling;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Runs that share passes: each is what it would be alone, and none depends on the others. */
@Timeout(200)
class SchedulerTest {
  private static final String LONG = "To be or not to be, that is the question.\n".repeat(12);

  private static Loupe loupe;
  private static ExecutorService threads;

  @BeforeAll
  static void open() throws Exception {
    loupe = Loupe.open(Golden.DEMO_MODEL, Options.defaults().backend(Backend.CPU).threads(2));
    threads = Executors.newCachedThreadPool();
  }

  @AfterAll
  static void close() {
    threads.shutdownNow();
    loupe.close();
  }

  private static GenerateRequest seeded(String text, int tokens, int seed) {
    return GenerateRequest.text(text).tokens(tokens).sampling(Sampling.seeded(seed));
  }

  /**
   * Requests of every kind, {@code some} of those of which there are several.
   *
   * @param most tokens of many samples
   * @param slides reads and writes more than the context, and keeps much of its attention
   */
  private static List<GenerateRequest> mixed(int some, int most, GenerateRequest slides) {
    List<GenerateRequest> requests = new ArrayList<>();
    for (int i = 0; i < some; i++) {
      requests.add(seeded("ROMEO:", 10 + 7 * i, i));
      requests.add(seeded(LONG.substring(0, 60 * (i + 1)), 30, i).logprobs(i));
      requests.add(seeded("", 40, i).samples(2 + 2 * i).stops(List.of("the", "\n")));
    }
    requests.add(seeded(LONG, 0, 1).logprobs(2));
    requests.add(seeded(LONG.substring(0, 300), 0, 1).samples(3));
    requests.add(seeded("a", most, 3).samples(some + 1).logprobs(1));
    requests.add(
        GenerateRequest.text("KING")
            .sampling(Sampling.greedy().withRepetitionPenalty(1.2))
            .samples(2));
    requests.add(
        GenerateRequest.text(LONG)
            .tokens(40)
            .sampling(Sampling.greedy().withPenalties(1, 0.5))
            .samples(2));
    requests.add(seeded("KING", 5, 1).attention(AttentionSelection.all()));
    AttentionSelection much = AttentionSelection.all().withScores().withStatistics(3);
    requests.add(
        seeded(LONG.substring(0, 300), 30, 4)
            .samples(3)
            .logprobs(1)
            .attention(much.withHeadStatistics().withValueNorms().withRollout()));
    requests.add(seeded(LONG.substring(0, 250), 0, 1).samples(2).attention(much));
    requests.add(slides.samples(2).slide(true).attention(much.withHeadStatistics()));
    requests.add(seeded(LONG.substring(0, 500), 200, 1).slide(true));
    requests.add(seeded("KING", 290, 6).slide(true).samples(3).logprobs(0));
    requests.add(
        seeded("JULIET:", 9, 1).interventions(Interventions.NONE.scale(1, 2, 0))); // beside them
    return requests;
  }

  @Test
  void eachRunIsWhatItIsAlone() throws Exception {
    assertEachIsWhatItIsAlone(mixed(2, 60, seeded(LONG.substring(0, 500), 80, 2)), List.of(3));
  }

  @Test
  @Tag("sweep")
  void eachOfMoreRunsIsWhatItIsAloneWithAnySlots() throws Exception {
    assertEachIsWhatItIsAlone(mixed(6, 255, seeded("ROMEO:", 300, 2)), List.of(1, 3, 8));
  }

  private static void assertEachIsWhatItIsAlone(List<GenerateRequest> requests, List<Integer> all)
      throws Exception {
    List<List<Generation>> expected = requests.stream().map(loupe::run).toList();
    assertTrue(
        expected.stream().flatMap(List::stream).filter(run -> run.tokens().size() > 256).count()
            > 3,
        "some slide");
    for (int slots : all) {
      try (Scheduler scheduler = loupe.scheduler(slots)) {
        assertEquals(slots, scheduler.slots());
        List<Future<List<Generation>>> runs = new ArrayList<>();
        for (GenerateRequest request : requests) { // many more than slots
          runs.add(threads.submit(() -> scheduler.run(request)));
        }
        for (int i = 0; i < runs.size(); i++) {
          assertSame(expected.get(i), runs.get(i).get(), "request %d of %d".formatted(i, slots));
        }
      }
    }
  }

  @Test
  void aListenerThatIsSlowKeepsNobodyWaiting() throws Exception {
    try (Scheduler scheduler = loupe.scheduler(4)) {
      AtomicInteger pieces = new AtomicInteger();
      CountDownLatch begun = new CountDownLatch(1);
      CountDownLatch done = new CountDownLatch(1);
      GenerateRequest slow =
          seeded("ROMEO:", 40, 1)
              .listener(
                  new GenerateRequest.Listener() {
                    @Override
                    public boolean text(int sample, String piece) {
                      pieces.incrementAndGet();
                      begun.countDown();
                      return waitsFor(done);
                    }
                  });
      Future<List<Generation>> slowly = threads.submit(() -> scheduler.run(slow));
      begun.await();
      assertSame(loupe.run(seeded("a", 240, 2)), scheduler.run(seeded("a", 240, 2)), "fast");
      assertEquals(1, pieces.get(), "the listener is still at its first piece");
      done.countDown();
      assertSame(loupe.run(seeded("ROMEO:", 40, 1)), slowly.get(), "slow");
    }
  }

  /** Samples that hold all slots lose one to a run that has none, and go on afterwards. */
  @Test
  void aRunThatComesLaterGetsASlot() throws Exception {
    try (Scheduler scheduler = loupe.scheduler(2)) {
      CountDownLatch begun = new CountDownLatch(2);
      CountDownLatch done = new CountDownLatch(1);
      GenerateRequest holds =
          seeded("ROMEO:", 40, 1)
              .samples(2)
              .listener(
                  new GenerateRequest.Listener() {
                    @Override
                    public boolean text(int sample, String piece) {
                      begun.countDown();
                      return begun.getCount() > 0 || waitsFor(done);
                    }
                  });
      Future<List<Generation>> held = threads.submit(() -> scheduler.run(holds));
      begun.await();
      Future<List<Generation>> later = threads.submit(() -> scheduler.run(seeded("a", 20, 2)));
      assertSame(loupe.run(seeded("a", 20, 2)), later.get(100, TimeUnit.SECONDS), "later");
      done.countDown();
      assertSame(loupe.run(seeded("ROMEO:", 40, 1).samples(2)), held.get(), "held");
    }
  }

  private static boolean waitsFor(CountDownLatch latch) {
    try {
      return latch.await(100, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      return false;
    }
  }

  private static boolean sleeps(long millis) {
    try {
      Thread.sleep(millis);
      return true;
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return false;
    }
  }

  @Test
  void aLongPromptIsReadInPiecesBetweenWhichOthersWrite() throws Exception {
    try (Scheduler scheduler = loupe.scheduler(2)) {
      AtomicInteger written = new AtomicInteger();
      Semaphore mayWrite = new Semaphore(3);
      CountDownLatch begun = new CountDownLatch(1);
      GenerateRequest writes =
          seeded("ROMEO:", 240, 1)
              .listener(
                  new GenerateRequest.Listener() {
                    @Override
                    public boolean text(int sample, String piece) {
                      written.incrementAndGet();
                      begun.countDown();
                      mayWrite.acquireUninterruptibly();
                      return true;
                    }
                  });
      Future<List<Generation>> writing = threads.submit(() -> scheduler.run(writes));
      begun.await();
      List<Integer> seen = new ArrayList<>();
      List<Integer> layers = new ArrayList<>();
      int length = loupe.tokenizer().encode(LONG.substring(0, 480), false).length;
      assertTrue(length > 2 * Scheduler.PROMPT_ROWS, length + " tokens");
      GenerateRequest reads =
          seeded(LONG.substring(0, 480), 5, 2)
              .listener(
                  new GenerateRequest.Listener() {
                    @Override
                    public boolean reading(int done, int all) {
                      layers.add(done);
                      int before = written.get();
                      mayWrite.release(3);
                      for (int wait = 0; wait < 20_000 && written.get() <= before; wait++) {
                        sleeps(1);
                      }
                      seen.add(written.get() - before);
                      return true;
                    }
                  });
      assertSame(loupe.run(seeded(LONG.substring(0, 480), 5, 2)), scheduler.run(reads), "reads");
      mayWrite.release(240);
      assertEquals(Math.ceilDiv(length, Scheduler.PROMPT_ROWS), seen.size(), "pieces");
      assertTrue(seen.stream().allMatch(tokens -> tokens > 0), "written meanwhile: " + seen);
      assertTrue(layers.getLast() > layers.getFirst(), "it gets on: " + layers);
      assertSame(loupe.run(seeded("ROMEO:", 240, 1)), writing.get(), "writes");
    }
  }

  @Test
  void whoIsInterruptedOrEndsLeavesItsSlotsToOthers() throws Exception {
    try (Scheduler scheduler = loupe.scheduler(2)) {
      CountDownLatch begun = new CountDownLatch(1);
      List<Thread> thread = new ArrayList<>();
      GenerateRequest many =
          seeded("ROMEO:", 240, 1)
              .samples(500)
              .listener(
                  new GenerateRequest.Listener() {
                    @Override
                    public boolean text(int sample, String piece) {
                      if (begun.getCount() > 0) {
                        thread.add(Thread.currentThread());
                        begun.countDown();
                      }
                      return true;
                    }
                  });
      Future<List<Generation>> runs = threads.submit(() -> scheduler.run(many));
      begun.await();
      assertSame(loupe.run(seeded("a", 20, 2)), scheduler.run(seeded("a", 20, 2)), "beside it");
      thread.getFirst().interrupt();
      List<Generation> ended = runs.get();
      assertEquals(Finish.INTERRUPTED, ended.getLast().finish());
      assertTrue(ended.getFirst().tokens().size() > ended.getFirst().promptLength());

      GenerateRequest unread = seeded("ROMEO:", 5, 1);
      Thread.currentThread().interrupt();
      assertEquals(Finish.INTERRUPTED, scheduler.run(unread).getFirst().finish());
      GenerateRequest refused =
          seeded(LONG.substring(0, 480), 5, 1)
              .listener(
                  new GenerateRequest.Listener() {
                    @Override
                    public boolean reading(int done, int all) {
                      return false;
                    }
                  });
      assertThrows(CancellationException.class, () -> scheduler.run(refused));
      GenerateRequest stopped =
          seeded("ROMEO:", 100, 1)
              .samples(5)
              .listener(
                  new GenerateRequest.Listener() {
                    @Override
                    public boolean text(int sample, String piece) {
                      return false;
                    }
                  });
      assertTrue(
          scheduler.run(stopped).stream().allMatch(run -> run.finish() == Finish.INTERRUPTED));
      assertThrows(
          IllegalStateException.class,
          () ->
              scheduler.run(
                  seeded("ROMEO:", 100, 1)
                      .listener(
                          new GenerateRequest.Listener() {
                            @Override
                            public boolean text(int sample, String piece) {
                              throw new IllegalStateException("a listener's own");
                            }
                          })));
      assertThrows(
          IllegalArgumentException.class, () -> scheduler.run(GenerateRequest.ids(0).tokens(257)));
      assertSame(
          loupe.run(seeded("x", 20, 2).samples(4)),
          scheduler.run(seeded("x", 20, 2).samples(4)),
          "after all of them");
    }
  }

  @Test
  void aRunThatFailsHurtsNoOther(@TempDir Path folder) throws Exception {
    TinyModel tiny = TinyModel.in(folder);
    try (Loupe whole = Loupe.open(tiny.folder(), Options.defaults().backend(Backend.CPU))) {
      int width = whole.info().config().nEmbd();
      int context = whole.info().config().nPositions();
      GenerateRequest brief =
          GenerateRequest.ids(1, 2).tokens(context / 2 - 3).sampling(Sampling.seeded(1));
      List<Generation> expected = whole.run(brief);
      tiny.poke("wpe.weight", context / 2 * width, Float.NaN); // whoever comes so far fails
      try (Loupe broken = Loupe.open(tiny.folder(), Options.defaults().backend(Backend.CPU));
          Scheduler scheduler = broken.scheduler(4)) {
        List<Future<List<Generation>>> fail = new ArrayList<>();
        List<Future<List<Generation>>> runs = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
          GenerateRequest far =
              GenerateRequest.ids(3, i).tokens(context - 2).sampling(Sampling.seeded(i));
          fail.add(threads.submit(() -> scheduler.run(far)));
          runs.add(threads.submit(() -> scheduler.run(brief)));
        }
        for (Future<List<Generation>> run : runs) {
          assertSame(expected, run.get(), "brief");
        }
        for (Future<List<Generation>> run : fail) {
          NotFiniteException why =
              assertInstanceOf(
                  NotFiniteException.class,
                  assertThrows(ExecutionException.class, run::get).getCause());
          assertTrue(String.valueOf(why.getMessage()).contains("wpe.weight holds NaN"));
        }
      }
    }
  }

  @Test
  void slotsHaveABoundAndAClosedSchedulerRunsNothing() {
    assertThrows(IllegalArgumentException.class, () -> loupe.scheduler(0));
    assertThrows(IllegalArgumentException.class, () -> loupe.scheduler(1025));
    Scheduler scheduler = loupe.scheduler(2);
    scheduler.close();
    scheduler.close();
    assertThrows(IllegalStateException.class, () -> scheduler.run(seeded("a", 3, 1)));
  }
}
