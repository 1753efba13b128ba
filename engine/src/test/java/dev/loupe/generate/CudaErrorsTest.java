package dev.loupe.generate;

import static dev.loupe.generate.CudaSizesTest.assertRowsAreWhole;
import static dev.loupe.generate.CudaSizesTest.ids;
import static dev.loupe.generate.CudaSizesTest.mapped;
import static dev.loupe.generate.CudaSizesTest.request;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import dev.loupe.Backend;
import dev.loupe.EmulatedGpu;
import dev.loupe.Loupe;
import dev.loupe.OnGpu;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.GpuMemoryException;
import dev.loupe.cuda.selftest.FirstContact;
import dev.loupe.ops.BackendException;
import dev.loupe.ops.Precision;
import dev.loupe.ops.cuda.Graphs;
import dev.loupe.sampling.Sampling;
import dev.loupe.weights.tensor.DType;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What goes wrong on the GPU, with a tiny random model: errors are clear and nothing is left. */
@OnGpu
@Timeout(200)
class CudaErrorsTest {
  private static final int FAULT = 719; // CUDA_ERROR_LAUNCH_FAILED
  private static final int ECC = 214; // CUDA_ERROR_ECC_UNCORRECTABLE
  private static final int NO_DEVICE = 46; // CUDA_ERROR_DEVICE_UNAVAILABLE

  @TempDir static Path folder;
  private static Path model;

  @BeforeAll
  static void model() throws Exception {
    EmulatedGpu.require();
    model = TinyModel.in(folder).folder();
  }

  @BeforeEach
  void nothingIsLeftOfOtherTests() {
    EmulatedGpu.reset();
    assertEquals(0, EmulatedGpu.liveAllocations());
  }

  @AfterEach
  void everythingWasReleased() {
    EmulatedGpu.reset();
    assertEquals(0, EmulatedGpu.liveAllocations());
  }

  private static Loupe open(Precision precision) throws Exception {
    return CudaSizesTest.open(model, precision);
  }

  @Test
  void aSessionLeavesNothingBehind() throws Exception {
    try (Loupe loupe = open(Precision.F32)) {
      int weights = EmulatedGpu.liveAllocations();
      assertTrue(weights > 0);
      loupe.run(mapped().samples(2));
      int kept = EmulatedGpu.liveAllocations();
      loupe.run(mapped().samples(2));
      assertEquals(kept, EmulatedGpu.liveAllocations());
      assertThrows(
          IllegalArgumentException.class,
          () -> loupe.run(request().attention(AttentionSelection.all().layers(99))));
      assertEquals(kept, EmulatedGpu.liveAllocations());
    }
  }

  @Test
  void anInterruptKeepsWhatWasWritten() throws Exception {
    try (Loupe loupe = open(Precision.F32)) {
      int[] whole = ids(loupe.run(request()).getFirst());
      Thread.currentThread().interrupt();
      Generation first = loupe.run(mapped()).getFirst();
      assertFalse(Thread.currentThread().isInterrupted(), "it was heard");
      assertEquals(Generation.Finish.INTERRUPTED, first.finish());
      assertArrayEquals(Arrays.copyOf(whole, first.promptLength() + 1), ids(first));
      assertRowsAreWhole(first, first.tokens().size());
    }
  }

  /** int8, which allocates the most: scales, and a matrix that is widened. */
  @Tag("sweep")
  @Test
  void anAllocationMayFail() throws Exception {
    assertAllocationsMayFail(5);
  }

  @Test
  @Tag("sweep")
  void everyAllocationMayFail() throws Exception {
    assertAllocationsMayFail(1);
  }

  /** Lets the first fail, and each that comes so many later. */
  private static void assertAllocationsMayFail(int step) throws Exception {
    open(Precision.INT8).close(); // tries the kernels out, if no test has
    EmulatedGpu.kernelsOff("weights"); // what they convert is not looked at
    int failures = 0;
    while (!opens(failures)) {
      failures += step;
    }
    EmulatedGpu.kernelsOff(null);
    for (; ; failures += step) {
      EmulatedGpu.failAllocation(failures);
      try (Loupe loupe = open(Precision.INT8)) {
        int weights = EmulatedGpu.liveAllocations();
        GenerateRequest request = GenerateRequest.ids(5, 6).tokens(2).samples(2);
        try {
          loupe.run(request.attention(AttentionSelection.all().withScores()));
        } catch (GpuMemoryException e) {
          assertTrue(String.valueOf(e.getMessage()).contains("out of"), e.getMessage());
          int left = EmulatedGpu.liveAllocations() - weights;
          assertTrue(left <= 1, left + " left, not just the widened matrix");
          loupe.run(GenerateRequest.ids(5, 6).tokens(0)); // the next one fits
        }
      } catch (GpuMemoryException e) {
        assertTrue(String.valueOf(e.getMessage()).contains("out of"), e.getMessage());
      }
      assertEquals(0, EmulatedGpu.liveAllocations(), "after failure " + failures);
      if (EmulatedGpu.failureIsToCome()) {
        break;
      }
    }
    assertTrue(failures > 60, failures + " allocations"); // weights, session, steps
  }

  /** False if the model does not open because an allocation fails, after so many. */
  private static boolean opens(int allocations) throws Exception {
    EmulatedGpu.failAllocation(allocations);
    try (Loupe _ = open(Precision.INT8)) {
      return true;
    } catch (GpuMemoryException e) {
      assertTrue(String.valueOf(e.getMessage()).contains("out of"), e.getMessage());
      assertEquals(0, EmulatedGpu.liveAllocations(), "after failure " + allocations);
      return false;
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"F32", "INT8"})
  void whatAModelNeedsIsWhatItTakes(Precision precision) throws Exception {
    assertAModelTakesWhatItNeeds(precision);
  }

  @ParameterizedTest
  @EnumSource(names = {"F16", "BF16"})
  @Tag("sweep")
  void whatAModelNeedsInHalvesIsWhatItTakes(Precision precision) throws Exception {
    assertAModelTakesWhatItNeeds(precision);
  }

  private static void assertAModelTakesWhatItNeeds(Precision precision) throws Exception {
    open(precision).close(); // tries the kernels out, if no test has
    EmulatedGpu.kernelsOff("weights");
    long needed = least("the model needs", () -> open(precision).close());
    EmulatedGpu.kernelsOff(null);
    EmulatedGpu.card(-1, -1, -1, needed);
    open(precision).close();
    EmulatedGpu.card(-1, -1, -1, needed - 1);
    String message =
        String.valueOf(assertThrows(GpuMemoryException.class, () -> open(precision)).getMessage());
    assertTrue(message.startsWith("out of GPU memory: the model needs "), message);
    assertTrue(message.contains("  token and position tables"), message);
    assertEquals(precision == Precision.F32, message.contains("f16 weights ("), message);
    assertTrue(message.contains("  margin that stays free for the driver"), message);
    EmulatedGpu.reset();
    try (Loupe loupe = open(precision)) {
      GenerateRequest fails = request().listener(failing());
      assertThrows(IllegalStateException.class, () -> loupe.run(fails)); // widens a matrix
      long staging = 16L << 20; // four pieces on their way, while it was loaded
      assertPlanned(
          needed - Graphs.margin(needed) - staging,
          EmulatedGpu.usedMemory(),
          EmulatedGpu.liveAllocations());
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"F32", "INT8"})
  void whatARunNeedsIsWhatItTakes(Precision precision) throws Exception {
    try (Loupe loupe = open(precision)) {
      loupe.run(request());
      for (AttentionSelection selection :
          List.of(
              AttentionSelection.all().withScores(),
              AttentionSelection.all().heads(1).dtype(DType.F16).withStatistics(5),
              AttentionSelection.all().statisticsOnly(1))) {
        GenerateRequest request =
            mapped()
                .attention(selection)
                .samples(2)
                .sampling(Sampling.seeded(3).withRepetitionPenalty(1.1));
        assertItTakesWhatItNeeds(loupe, request);
      }
    }
  }

  /** The one version of attention that takes memory of its own. */
  @Test
  void theScoresOfPlainAttentionArePlanned() throws Exception {
    Options plain = Options.defaults().backend(Backend.CUDA).kernels(Map.of("attention", "v1"));
    try (Loupe loupe = Loupe.open(model, plain)) {
      GenerateRequest request = GenerateRequest.text("ROMEO: what ".repeat(8)).tokens(6);
      loupe.run(request);
      assertItTakesWhatItNeeds(loupe, request);
    }
  }

  private static void assertItTakesWhatItNeeds(Loupe loupe, GenerateRequest request)
      throws Exception {
    long[] used = {0};
    GenerateRequest.Listener looks =
        new GenerateRequest.Listener() {
          @Override
          public boolean text(int sample, String piece) {
            used[0] = EmulatedGpu.usedMemory();
            return true;
          }
        };
    long needed = least("the run needs", () -> begin(loupe, request));
    EmulatedGpu.card(-1, -1, -1, needed);
    loupe.run(request.listener(looks));
    assertPlanned(needed - Graphs.margin(8L << 30), used[0], EmulatedGpu.liveAllocations());
  }

  /** What is taken is what was planned but for the rounding of each allocation. */
  private static void assertPlanned(long planned, long used, int allocations) {
    long rounding = 512L * allocations + (8L << 20); // the largest come in 2 MiB
    assertTrue(used <= planned, used + " bytes used of " + planned);
    assertTrue(planned - used < rounding, used + " bytes used of " + planned);
  }

  /** Ends a run once its first layer was read, so that it leaves nothing to the next. */
  private static GenerateRequest.Listener failing() {
    return new GenerateRequest.Listener() {
      @Override
      public boolean reading(int layersDone, int layers) {
        throw new IllegalStateException("enough");
      }
    };
  }

  private static void begin(Loupe loupe, GenerateRequest request) {
    try {
      loupe.run(request.listener(failing()));
    } catch (IllegalStateException e) {
      // as it should
    }
  }

  private interface Work {
    void run() throws Exception;
  }

  /** The least memory that the check lets through, by bisection; what it lets through must fit. */
  private static long least(String refusal, Work work) throws Exception {
    long fails = 1;
    long fits = 1L << 30;
    while (fits - fails > 1) {
      long middle = (fits + fails) / 2;
      EmulatedGpu.card(-1, -1, -1, middle);
      try {
        work.run();
        fits = middle;
      } catch (GpuMemoryException e) {
        if (!String.valueOf(e.getMessage()).contains(refusal)) {
          throw e;
        }
        fails = middle;
      }
    }
    return fits;
  }

  @Test
  void aFaultInThePromptIsAnError() throws Exception {
    try (Loupe loupe = open(Precision.F32)) {
      EmulatedGpu.failKernel(5, FAULT);
      GpuException e = assertThrows(GpuException.class, () -> loupe.run(mapped()));
      assertTrue(String.valueOf(e.getMessage()).contains("the GPU must be closed"), e.getMessage());
      assertThrows(GpuException.class, () -> loupe.run(request()), "it stays lost");
    }
    FirstContact.Listener never =
        new FirstContact.Listener() {
          @Override
          public void begins(String sentence) {
            fail("kernels are not tested for a process that can't use them");
          }
        };
    Options options = Options.defaults().backend(Backend.CUDA).firstContact(never);
    assertThrows(BackendException.class, () -> Loupe.open(model, options), "in the whole process");
    EmulatedGpu.reset();
    try (Loupe loupe = open(Precision.F32)) {
      loupe.run(request()); // a new context is well
    }
  }

  @Test
  void aFaultWhileWritingKeepsWhatWasWritten() throws Exception {
    int[] whole;
    try (Loupe loupe = open(Precision.F32)) {
      whole = ids(loupe.run(request().tokens(30)).getFirst());
    }
    for (int error : new int[] {FAULT, ECC, NO_DEVICE}) {
      List<String> heard = new ArrayList<>();
      GenerateRequest.Listener listener =
          new GenerateRequest.Listener() {
            @Override
            public boolean text(int sample, String piece) {
              heard.add(piece);
              if (heard.size() == 2) {
                EmulatedGpu.failKernel(1, error);
              }
              return true;
            }
          };
      try (Loupe loupe = open(Precision.F32)) {
        GenerateRequest request = mapped().tokens(30).listener(listener);
        BrokenRunException e = assertThrows(BrokenRunException.class, () -> loupe.run(request));
        Generation run = e.runs().getFirst();
        assertEquals(Generation.Finish.ERROR, run.finish());
        assertEquals(String.join("", heard), run.text());
        assertNotEquals(whole.length, run.tokens().size());
        assertArrayEquals(Arrays.copyOf(whole, run.tokens().size()), ids(run));
        assertRowsAreWhole(run, run.tokens().size() - 1);
      }
      assertEquals(0, EmulatedGpu.liveAllocations());
      EmulatedGpu.reset();
    }
  }

  @Test
  void allIsReleasedWhereEvenFreeingFails() throws Exception {
    int operatingSystem = 304; // not an error that is known to end a context
    Loupe loupe = open(Precision.F32);
    EmulatedGpu.failKernel(5, operatingSystem);
    assertThrows(GpuException.class, () -> loupe.run(mapped()));
    assertThrows(GpuException.class, loupe::close);
  }
}
