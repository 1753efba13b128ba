package dev.loupe.generate;

import static dev.loupe.generate.CudaSizesTest.open;
import static dev.loupe.generate.SameGenerations.assertSame;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Backend;
import dev.loupe.EmulatedGpu;
import dev.loupe.Loupe;
import dev.loupe.OnGpu;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.cuda.driver.GpuMemoryException;
import dev.loupe.generate.Generation.Finish;
import dev.loupe.ops.Precision;
import dev.loupe.sampling.NotFiniteException;
import dev.loupe.sampling.Sampling;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Runs that share decoding steps on a GPU: each is bit by bit what it is alone. */
@OnGpu
@Timeout(600)
class CudaSchedulerTest {
  @TempDir static Path folder;
  private static Path model;
  private static ExecutorService threads;

  @BeforeAll
  static void model() throws Exception {
    model = TinyModel.ofIds(folder).folder();
    threads = Executors.newCachedThreadPool();
  }

  @AfterAll
  static void end() {
    threads.shutdownNow();
  }

  /** After so many tokens. */
  private static GenerateRequest after(int prompt, int tokens, int seed) {
    int[] ids = IntStream.range(0, prompt).map(i -> (7 * i + 3) % 300).toArray();
    return GenerateRequest.ids(ids).tokens(tokens).sampling(Sampling.seeded(seed));
  }

  /** Likewise, with scores: a wrong key or token changes those of this model, and seldom a draw. */
  private static GenerateRequest scored(int prompt, int tokens, int seed) {
    return after(prompt, tokens, seed).logprobs(0);
  }

  /** Of all kinds: lengths, samplings, scores, samples, contexts that slide, kept attention. */
  private static List<GenerateRequest> mixed() {
    List<GenerateRequest> requests = new ArrayList<>();
    for (int i = 0; i < 5; i++) {
      requests.add(after(5, 3 + 4 * i, i));
      requests.add(after(1 + 4 * i, 9, i).logprobs(i));
      requests.add(scored(2, 5, i).samples(1 + i));
    }
    requests.add(after(20, 0, 1).logprobs(2));
    Sampling greedy = Sampling.greedy();
    requests.add(after(7, 9, 0).sampling(greedy.withRepetitionPenalty(1.2)).samples(2));
    requests.add(after(7, 6, 0).sampling(greedy.withPenalties(1, 0.5)).samples(2));
    AttentionSelection much = AttentionSelection.all().withScores().withStatistics(3);
    requests.add(after(4, 5, 1).samples(3).attention(much.withHeadStatistics()));
    requests.add(after(30, 20, 6).slide(true).samples(2).logprobs(0));
    requests.add(scored(12, 40, 4).slide(true));
    return requests;
  }

  /** 1, 3, 8 and 33 sequences at once, which enter and leave in no order. */
  @ParameterizedTest
  @CsvSource({"F16, 3"})
  void eachRunIsWhatItIsAlone(Precision precision, int slots) throws Exception {
    assertEachIsWhatItIsAlone(precision, slots);
  }

  @Tag("sweep")
  @ParameterizedTest
  @CsvSource({
    "F16, 1",
    "F16, 8",
    "F16, 33",
    "INT8, 1",
    "INT8, 3",
    "INT8, 33",
    "F32, 3",
    "F32, 8",
    "F32, 33",
    "BF16, 8",
    "BF16, 33"
  })
  void soItIsInEveryPrecision(Precision precision, int slots) throws Exception {
    assertEachIsWhatItIsAlone(precision, slots);
  }

  private static void assertEachIsWhatItIsAlone(Precision precision, int slots) throws Exception {
    List<GenerateRequest> requests = mixed();
    Collections.shuffle(requests, new Random(slots));
    try (Loupe loupe = open(model, precision)) {
      List<List<Generation>> expected = requests.stream().map(loupe::run).toList();
      try (Scheduler scheduler = loupe.scheduler(slots)) {
        assertEquals(slots, scheduler.slots());
        List<Future<List<Generation>>> runs = new ArrayList<>();
        for (GenerateRequest request : requests) {
          runs.add(threads.submit(() -> scheduler.run(request)));
        }
        for (int i = 0; i < runs.size(); i++) {
          assertSame(expected.get(i), runs.get(i).get(), "request " + i);
        }
      }
    }
  }

  /** Six runs that begin together take hardly more calls of the driver than one. */
  @Test
  void runsShareTheirSteps() throws Exception {
    int runs = 6;
    try (Loupe loupe = open(model, Precision.F16);
        Scheduler scheduler = loupe.scheduler(runs)) {
      List<Generation> _ = scheduler.run(after(4, 30, 0));
      EmulatedGpu.resetCalls();
      List<Generation> _ = scheduler.run(after(4, 30, 0));
      long alone = EmulatedGpu.calls().all();
      CountDownLatch begun = new CountDownLatch(runs);
      EmulatedGpu.resetCalls();
      List<Future<List<Generation>>> all = new ArrayList<>();
      for (int i = 0; i < runs; i++) {
        GenerateRequest request = after(4, 30, i).listener(waitsOnce(begun, begun));
        all.add(threads.submit(() -> scheduler.run(request)));
      }
      for (Future<List<Generation>> each : all) {
        assertEquals(34, each.get().getFirst().tokens().size());
      }
      long together = EmulatedGpu.calls().all();
      assertTrue(together < 4 * alone, "%d calls, alone %d".formatted(together, alone));
    }
  }

  /** All but the first of each step that is replayed. */
  @Test
  void kernelsStartEarly() throws Exception {
    EmulatedGpu.require();
    try (Loupe loupe = open(model, Precision.F16)) {
      List<Generation> _ = loupe.run(after(4, 8, 1));
      EmulatedGpu.resetCalls();
      List<Generation> _ = loupe.run(after(4, 8, 1));
      long kernels = 5L * loupe.info().config().nLayer() + 4;
      long early = EmulatedGpu.calls().early();
      assertTrue(early >= 4 * (kernels - 1), early + " of " + kernels + " a step");
      assertEquals(0, early % (kernels - 1));
    }
  }

  @Test
  void whereMemoryIsShortThereAreFewerSlots() throws Exception {
    EmulatedGpu.require();
    EmulatedGpu.card(-1, -1, -1, 40 << 20);
    try (Loupe loupe = open(model, Precision.F16)) {
      GenerateRequest request = after(3, 9, 1);
      List<Generation> expected = loupe.run(request);
      try (Scheduler scheduler = loupe.scheduler(1024)) {
        int slots = scheduler.slots();
        assertTrue(slots >= 1 && slots < 1024, slots + " slots");
        assertSame(expected, scheduler.run(request), "run");
      }
    } finally {
      EmulatedGpu.reset();
    }
  }

  /** Where no text has room beside the model, none of it is loaded. */
  @Test
  void slotsArePlannedBeforeTheModelIsLoaded() throws Exception {
    EmulatedGpu.require();
    Options options = Options.defaults().backend(Backend.CUDA).precision(Precision.F16);
    try {
      int[] room = {0, 64}; // 64 KB each: too little, and enough
      while (!hasRoom(options, room[1] << 16)) {
        room[0] = room[1];
        room[1] *= 2;
      }
      while (room[1] - room[0] > 1) {
        int between = (room[0] + room[1]) / 2;
        room[hasRoom(options, between << 16) ? 1 : 0] = between;
      }
      EmulatedGpu.card(-1, -1, -1, room[1] << 16);
      AtomicBoolean loads = new AtomicBoolean();
      GpuMemoryException e =
          assertThrows(
              GpuMemoryException.class,
              () -> Loupe.open(model, options.slots(2), (_, _) -> loads.set(true)).close());
      String message = String.valueOf(e.getMessage());
      assertTrue(message.contains("the model beside the cache of a text of "), message);
      assertFalse(loads.get(), "it was loaded first");

      EmulatedGpu.card(-1, -1, -1, 40 << 20);
      try (Loupe loupe = Loupe.open(model, options.slots(1024));
          Scheduler scheduler = loupe.scheduler(1024)) {
        assertTrue(scheduler.slots() > 1 && scheduler.slots() < 1024, "" + scheduler.slots());
      }
    } finally {
      EmulatedGpu.reset();
    }
  }

  private static boolean hasRoom(Options options, int memory) throws Exception {
    EmulatedGpu.card(-1, -1, -1, memory);
    try {
      Loupe.open(model, options).close();
      return true;
    } catch (GpuMemoryException e) {
      return false;
    }
  }

  /** What the steps chose ahead for it is kept until it asks. */
  @Test
  void aListenerThatIsSlowKeepsNobodyWaiting() throws Exception {
    try (Loupe loupe = open(model, Precision.F16);
        Scheduler scheduler = loupe.scheduler(3)) {
      CountDownLatch begun = new CountDownLatch(1);
      CountDownLatch done = new CountDownLatch(1);
      GenerateRequest slow = scored(6, 30, 1).listener(waitsOnce(begun, done));
      Future<List<Generation>> slowly = threads.submit(() -> scheduler.run(slow));
      begun.await();
      for (int seed = 2; seed < 5; seed++) {
        GenerateRequest fast = scored(2, 25, seed);
        assertSame(loupe.run(fast), scheduler.run(fast), "fast");
      }
      done.countDown();
      assertSame(loupe.run(scored(6, 30, 1)), slowly.get(), "slow");
    }
  }

  private static GenerateRequest.Listener waitsOnce(CountDownLatch begun, CountDownLatch done) {
    return new GenerateRequest.Listener() {
      @Override
      public boolean text(int sample, String piece) {
        begun.countDown();
        try {
          done.await();
          return true;
        } catch (InterruptedException e) {
          return false;
        }
      }
    };
  }

  /** Who leaves amid a pass leaves its slots to others, and so does who fails. */
  @Test
  void whoLeavesOrFailsHurtsNoOther(@TempDir Path other) throws Exception {
    TinyModel tiny = TinyModel.ofIds(other);
    GenerateRequest brief = scored(1, 12, 1);
    List<Generation> expected;
    int context;
    try (Loupe whole = open(tiny.folder(), Precision.F32)) {
      expected = whole.run(brief);
      context = whole.info().config().nPositions();
      int width = whole.info().config().nEmbd();
      tiny.poke("wpe.weight", context / 2 * width, Float.NaN); // whoever comes so far fails
    }
    assertTrue(expected.getFirst().tokens().size() < context / 2);
    try (Loupe broken = open(tiny.folder(), Precision.F32);
        Scheduler scheduler = broken.scheduler(4)) {
      List<Future<List<Generation>>> fail = new ArrayList<>();
      List<Future<List<Generation>>> leave = new ArrayList<>();
      List<Future<List<Generation>>> stay = new ArrayList<>();
      for (int i = 0; i < 6; i++) {
        int seed = i;
        fail.add(threads.submit(() -> scheduler.run(after(2, context - 3, seed))));
        leave.add(threads.submit(() -> scheduler.run(leavesAfter(3, seed))));
        stay.add(threads.submit(() -> scheduler.run(brief)));
      }
      for (Future<List<Generation>> run : stay) {
        assertSame(expected, run.get(), "brief");
      }
      for (Future<List<Generation>> run : leave) {
        assertEquals(Finish.INTERRUPTED, run.get().getFirst().finish());
      }
      for (Future<List<Generation>> run : fail) {
        assertInstanceOf(
            NotFiniteException.class, assertThrows(ExecutionException.class, run::get).getCause());
      }
      assertSame(expected, scheduler.run(brief), "after all of them");
    }
  }

  private static GenerateRequest leavesAfter(int pieces, int seed) {
    int[] heard = {0};
    return after(3, 15, seed)
        .samples(2)
        .listener(
            new GenerateRequest.Listener() {
              @Override
              public boolean text(int sample, String piece) {
                return ++heard[0] < pieces;
              }
            });
  }
}
