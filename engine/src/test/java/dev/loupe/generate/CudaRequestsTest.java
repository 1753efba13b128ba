package dev.loupe.generate;

import static dev.loupe.generate.CudaSizesTest.ids;
import static dev.loupe.generate.CudaSizesTest.mapped;
import static dev.loupe.generate.CudaSizesTest.open;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.EmulatedGpu;
import dev.loupe.EmulatedGpu.Calls;
import dev.loupe.Loupe;
import dev.loupe.OnGpu;
import dev.loupe.TinyModel;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.interpret.ActivationCache;
import dev.loupe.interpret.Lens;
import dev.loupe.model.Interventions;
import dev.loupe.ops.Precision;
import dev.loupe.ops.cuda.Graphs;
import dev.loupe.sampling.Sampling;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * What requests leave to each other on the GPU. The emulated driver counts what it is asked for,
 * and gives out memory that is full of NaN.
 */
@OnGpu
@Timeout(400)
class CudaRequestsTest {
  private static final int FAULT = 719; // CUDA_ERROR_LAUNCH_FAILED

  @TempDir static Path folder;
  private static Path model;

  @BeforeAll
  static void model() throws Exception {
    EmulatedGpu.require();
    model = TinyModel.in(folder).folder();
  }

  @BeforeEach
  @AfterEach
  void nothingIsLeft() {
    EmulatedGpu.reset();
    assertEquals(0, EmulatedGpu.liveAllocations());
  }

  private static void assertBuildsNothing(Calls calls) {
    Calls none = new Calls(calls.all(), 0, 0, 0, 0, 0, 0, 0, calls.early());
    assertEquals(none, calls);
  }

  /** Of one size, and as unlike as they can be. */
  private static List<GenerateRequest> ofOneSize() {
    return List.of(
        plain(),
        GenerateRequest.text("To be or not").tokens(5).sampling(Sampling.greedy()),
        plain().sampling(new Sampling(0.7, 20, 0.9, 0.05, 1, 0, 0, 77)),
        GenerateRequest.ids(5).tokens(12).sampling(new Sampling(1.5, 0, 1, 0, 1.4, 0, 0, -9)),
        plain().sampling(Sampling.seeded(4)));
  }

  private static GenerateRequest plain() {
    return GenerateRequest.text("ROMEO: what").tokens(9).sampling(Sampling.seeded(3));
  }

  private static List<int[]> alone(List<GenerateRequest> requests) throws Exception {
    List<int[]> all = new ArrayList<>();
    for (GenerateRequest request : requests) {
      try (Loupe loupe = open(model, Precision.F16)) {
        all.add(ids(loupe.run(request).getFirst()));
      }
    }
    return all;
  }

  @Test
  void aRequestLikeTheLastBuildsNothing() throws Exception {
    List<int[]> expected = alone(ofOneSize());
    try (Loupe loupe = open(model, Precision.F16)) {
      List<GenerateRequest> requests = ofOneSize();
      for (int i = 0; i < 2 * requests.size(); i++) {
        EmulatedGpu.resetCalls();
        int[] ids = ids(loupe.run(requests.get(i % requests.size())).getFirst());
        assertArrayEquals(expected.get(i % requests.size()), ids, "request " + i);
        Calls calls = EmulatedGpu.calls();
        if (i == 0) {
          assertTrue(calls.allocations() > 10 && calls.captures() == 1, calls.toString());
        } else if (i < requests.size()) { // a prompt of one token is read by another kernel
          assertEquals(0, calls.captures() + calls.pinned() + calls.objects(), calls.toString());
        } else {
          assertBuildsNothing(calls);
        }
      }
    }
  }

  @Tag("sweep")
  @Test
  void norDoesOneWithMapsSamplesAndLogprobs() throws Exception {
    AttentionSelection some = AttentionSelection.all().heads(1).withScores().withStatistics(3);
    for (GenerateRequest request :
        List.of(mapped(), mapped().samples(3), mapped().attention(some), mapped().tokens(0))) {
      try (Loupe loupe = open(model, Precision.INT8)) {
        List<Generation> first = loupe.run(request);
        Sampling sampling = request.sampling;
        loupe.run(request.sampling(Sampling.seeded(91)));
        request.sampling(sampling);
        EmulatedGpu.resetCalls();
        List<Generation> again = loupe.run(request);
        assertBuildsNothing(EmulatedGpu.calls());
        for (int s = 0; s < first.size(); s++) {
          assertArrayEquals(ids(first.get(s)), ids(again.get(s)));
          AttentionRows.close(first.get(s).attention(), again.get(s).attention(), 0);
        }
      }
    }
  }

  @Test
  void norDoesTheLensOrAPassOfAReader() throws Exception {
    try (Loupe loupe = open(model, Precision.F32)) {
      Prompt text = Prompt.text("But soft, what light");
      Lens first = loupe.lens(text, -1, -1, 3);
      EmulatedGpu.resetCalls();
      assertEquals(first.heads(), loupe.lens(text, -1, -1, 3).heads());
      assertBuildsNothing(EmulatedGpu.calls());
      try (BatchReader reader =
          loupe.batchReader(Optional.of(AttentionSelection.all()), true, 20)) {
        List<int[]> texts = List.of(new int[] {5, 6, 7}, new int[] {8, 9});
        double logprob = last(reader.read(texts.iterator())).logprob();
        EmulatedGpu.resetCalls();
        assertEquals(logprob, last(reader.read(texts.iterator())).logprob());
        assertBuildsNothing(EmulatedGpu.calls());
      }
      try (ActivationCache cache = loupe.cache(ReadRequest.of(text))) {
        float[] row = cache.row(1, 0, 3);
        cache.row(0, 1, 2);
        EmulatedGpu.resetCalls();
        assertArrayEquals(row, cache.row(1, 0, 3));
        assertBuildsNothing(EmulatedGpu.calls());
      }
    }
  }

  private static BatchReader.Result last(Iterator<BatchReader.Result> results) {
    BatchReader.Result last = results.next();
    while (results.hasNext()) {
      last = results.next();
    }
    return last;
  }

  @Test
  void aRequestThatWasCancelledLeavesItsMemoryToTheNext() throws Exception {
    GenerateRequest.Listener ends =
        new GenerateRequest.Listener() {
          @Override
          public boolean reading(int layersDone, int layers) {
            return layersDone < 2;
          }
        };
    GenerateRequest.Listener stops =
        new GenerateRequest.Listener() {
          @Override
          public boolean text(int sample, String piece) {
            return false;
          }
        };
    try (Loupe loupe = open(model, Precision.F32)) {
      int[] whole = ids(loupe.run(plain()).getFirst());
      EmulatedGpu.resetCalls();
      assertThrows(CancellationException.class, () -> loupe.run(plain().listener(ends)));
      loupe.run(plain().listener(stops)); // with steps ahead of it
      Thread.currentThread().interrupt();
      loupe.run(plain());
      assertFalse(Thread.currentThread().isInterrupted(), "it was heard");
      assertArrayEquals(whole, ids(loupe.run(plain()).getFirst()));
      assertBuildsNothing(EmulatedGpu.calls());
    }
  }

  @Test
  void whatAFailedRequestLeftIsNotUsedAgain() throws Exception {
    GenerateRequest.Listener throwing =
        new GenerateRequest.Listener() {
          @Override
          public boolean text(int sample, String piece) {
            throw new IllegalStateException("a listener's own fault");
          }
        };
    try (Loupe loupe = open(model, Precision.F32)) {
      int weights = EmulatedGpu.liveAllocations();
      int[] whole = ids(loupe.run(plain()).getFirst());
      assertTrue(EmulatedGpu.liveAllocations() > weights);
      assertThrows(IllegalStateException.class, () -> loupe.run(plain().listener(throwing)));
      assertEquals(weights, EmulatedGpu.liveAllocations());
      assertArrayEquals(whole, ids(loupe.run(plain()).getFirst()));
      EmulatedGpu.failKernel(40, FAULT);
      assertThrows(RuntimeException.class, () -> loupe.run(plain().tokens(20)));
      assertThrows(GpuException.class, () -> loupe.run(plain()), "it stays lost");
    }
  }

  /** A model with room for one session beside its weights gives it to whoever comes. */
  @Test
  void whatIsKeptIsNoReasonToRefuse() throws Exception {
    List<GenerateRequest> requests = List.of(mapped(), mapped().samples(2), plain());
    List<int[]> expected = alone(requests);
    long most = 0;
    for (GenerateRequest request : requests) {
      try (Loupe loupe = open(model, Precision.F16)) {
        loupe.run(request);
        most = Math.max(most, EmulatedGpu.usedMemory());
      }
    }
    try (Loupe loupe = open(model, Precision.F16)) {
      EmulatedGpu.card(-1, -1, -1, Graphs.margin(8L << 30) + most + (64 << 10));
      for (int round = 0; round < 2; round++) {
        for (int i = 0; i < requests.size(); i++) {
          assertArrayEquals(expected.get(i), ids(loupe.run(requests.get(i)).getFirst()));
        }
      }
    }
    try (Loupe loupe = open(model, Precision.F16)) {
      loupe.run(requests.getFirst());
      EmulatedGpu.failAllocation(3); // as if somebody else had taken the rest
      assertArrayEquals(expected.get(1), ids(loupe.run(requests.get(1)).getFirst()));
      assertFalse(EmulatedGpu.failureIsToCome());
    }
  }

  @Test
  void noMoreThanAFewSessionsAreKept() throws Exception {
    try (Loupe loupe = open(model, Precision.F32)) {
      int weights = EmulatedGpu.liveAllocations();
      GenerateRequest request = plain().tokens(2);
      int most = 0;
      for (int samples = 1; samples <= 4; samples++) {
        loupe.run(request.samples(samples));
        most = Math.max(most, EmulatedGpu.liveAllocations() - weights);
      }
      for (int samples = 5; samples <= 7; samples++) {
        loupe.run(request.samples(samples));
        assertTrue(EmulatedGpu.liveAllocations() - weights <= most);
      }
    }
  }

  @Tag("sweep")
  @Test
  void requestsOfManyShapesAtOnce() throws Exception {
    List<GenerateRequest> requests = new ArrayList<>(ofOneSize());
    requests.add(mapped());
    requests.add(mapped().samples(2));
    List<int[]> expected = alone(requests);
    try (Loupe loupe = open(model, Precision.F16);
        ExecutorService threads = Executors.newFixedThreadPool(4)) {
      List<Future<int[]>> all = new ArrayList<>();
      for (int i = 0; i < 2 * requests.size(); i++) {
        GenerateRequest request = requests.get(i * 5 % requests.size());
        all.add(threads.submit(() -> ids(loupe.run(request).getFirst())));
      }
      for (int i = 0; i < all.size(); i++) {
        int[] of = expected.get(i * 5 % requests.size());
        assertArrayEquals(of, all.get(i).get(), "request " + i);
      }
    }
  }

  /** One that is changed has weights of its own, which end with it. */
  @Test
  void aChangedModelLeavesNothing() throws Exception {
    try (Loupe loupe = open(model, Precision.F32)) {
      GenerateRequest request = plain();
      loupe.run(request);
      int before = EmulatedGpu.liveAllocations();
      Interventions off = Interventions.NONE.scale(1, 0, 0);
      int[] changed = ids(loupe.run(request.interventions(off)).getFirst());
      assertEquals(before, EmulatedGpu.liveAllocations());
      assertArrayEquals(changed, ids(loupe.run(request.interventions(off)).getFirst()));
    }
  }

  @Test
  void loadingPinsAFewBuffersAndWaitsForNoMatrix() throws Exception {
    open(model, Precision.F16).close(); // the first time, it is compared with the CPU
    EmulatedGpu.resetCalls();
    try (Loupe loupe = open(model, Precision.F16)) {
      Calls calls = EmulatedGpu.calls();
      assertTrue(calls.pinned() > 0, calls.toString());
      assertEquals(calls.pinned(), calls.unpinned());
      assertEquals(0, calls.waits());
      assertEquals(0, calls.captures());
      int[] usual = ids(loupe.run(plain()).getFirst());
      EmulatedGpu.refusePinned(true);
      try (Loupe plain = open(model, Precision.F16)) {
        EmulatedGpu.refusePinned(false);
        assertArrayEquals(usual, ids(plain.run(plain()).getFirst()));
      }
    }
  }

  @Test
  void aLoadThatFailsLeavesNothing() {
    for (int after : new int[] {1, 4, 8}) { // 0: that which opening tries out
      EmulatedGpu.failKernel(after, FAULT);
      assertThrows(GpuException.class, () -> open(model, Precision.INT8).close());
      EmulatedGpu.reset();
      assertEquals(0, EmulatedGpu.liveAllocations());
    }
  }

  @Test
  void theMarginIsThatOfRealCards() {
    assertEquals((80L << 30) / 100 * 3, Graphs.margin(80L << 30));
    assertEquals(256L << 20, Graphs.margin(8L << 30));
    assertEquals(256L << 20, Graphs.margin(2L << 30));
    assertEquals(2 << 20, Graphs.margin(16 << 20));
  }
}
