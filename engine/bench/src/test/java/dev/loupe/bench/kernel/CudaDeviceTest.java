package dev.loupe.bench.kernel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.EmulatedGpu;
import dev.loupe.OnGpu;
import dev.loupe.bench.kernel.Measurement.Status;
import dev.loupe.cuda.driver.CudaDriver;
import dev.loupe.ops.BackendException;
import dev.loupe.ops.Precision;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Every candidate against double precision, on the emulator or a card; times are not looked at. */
@OnGpu
@Timeout(200)
class CudaDeviceTest {
  private static final int FAULT = 719; // CUDA_ERROR_LAUNCH_FAILED
  private static final KernelComparison.Settings FEW = new KernelComparison.Settings(5, 0.01);
  private static final boolean EMULATED =
      CudaDriver.find().cards().stream().anyMatch(name -> name.contains("emulator"));

  private CudaDevice device;

  @BeforeEach
  void open() {
    if (EMULATED) {
      EmulatedGpu.reset();
      assertEquals(0, EmulatedGpu.liveAllocations(), "of other tests");
    }
    device = CudaDevice.open(0);
  }

  @AfterEach
  void close() {
    device.close();
    if (EMULATED) {
      EmulatedGpu.reset();
      assertEquals(0, EmulatedGpu.liveAllocations());
    }
  }

  /**
   * No sizes but those that tiles are not made for; maps of more than a piece that is downloaded.
   */
  private static Shape awkward(Operation operation) {
    return switch (operation) {
      case ATTENTION -> Shape.of(operation, 69, 3, 40);
      case DECODE_ATTENTION -> Shape.of(operation, 131, 3, 40);
      case MAP -> Shape.of(operation, 1030, 1, 8);
      case LINEAR -> Shape.of(operation, 5, 208, 35);
      case LAYERNORM, SOFTMAX, GELU -> Shape.of(operation, 35, 200);
    };
  }

  private List<Measurement> compare(
      KernelComparison.Ladders ladders, Shape shape, Precision precision) {
    return KernelComparison.run(
        device, ladders, List.of(shape), List.of(precision), List.of(), FEW, part -> true);
  }

  @ParameterizedTest
  @EnumSource
  void theUsualShapesOfTheEmulatorAreRightInEveryPrecision(Operation operation) {
    Shape shape = Shape.parse(operation, usual(operation), List.of()).getFirst();
    for (Precision precision : Precision.values()) {
      List<Candidate> ladder = device.candidates(operation, precision);
      if (ladder.isEmpty()) {
        continue;
      }
      List<Measurement> all = compare(device::candidates, shape, precision);
      assertEquals(
          ladder.stream().map(Candidate::name).toList(),
          all.stream().map(Measurement::variant).toList());
      for (Measurement m : all) {
        assertEquals(Status.OK, m.status(), () -> m.variant() + " " + precision + ": " + m.why());
        assertTrue(m.error() <= 1 && m.microseconds().size() == 5, m::toString);
        assertTrue(m.roofline().bytesPerSecond() > 0, m::toString);
        assertTrue(m.roofline().operationsPerSecond() > 0, m::toString);
        if (!m.variant().equals("cublas")) {
          Candidate.Resources taken = m.resources();
          assertNotNull(taken, m::toString);
          assertTrue(taken.occupancy() > 0 && taken.occupancy() <= 1, m::toString);
          assertTrue(taken.threads() >= 32 && taken.registers() >= 16, m::toString);
        }
      }
    }
  }

  /** As on the emulator, on any card. */
  private static String usual(Operation operation) {
    return switch (operation) {
      case ATTENTION, DECODE_ATTENTION, MAP -> "T=64,H=2,D=64";
      case LINEAR -> "M=8,K=128,N=64";
      case LAYERNORM, SOFTMAX, GELU -> "R=16,C=128";
    };
  }

  @Tag("sweep")
  @ParameterizedTest
  @EnumSource
  void allOutputsAreRightOnAwkwardShapes(Operation operation) {
    for (Precision precision : Precision.values()) {
      for (Candidate candidate : device.candidates(operation, precision)) {
        assertEquals("", candidate.refuses(awkward(operation)), candidate.name());
        assertRight(candidate, awkward(operation));
      }
    }
  }

  /** All outputs, not those alone that a comparison looks at; returns what a launch takes. */
  private static Candidate.Resources assertRight(Candidate candidate, Shape shape) {
    Problem problem = new Problem(shape, candidate.precision());
    int tokens = shape.operation() == Operation.MAP ? shape.size("T") : 1;
    try (Candidate.Run run = candidate.prepare(problem)) {
      run.poison();
      assertTrue(Float.isNaN(run.output(0)));
      assertTrue(run.microseconds() >= 0);
      int wrong = 0;
      for (long i = 0; i < problem.outputs(); i++) {
        if (tokens > 1 && i % tokens > i / tokens % tokens) {
          continue; // above the diagonal
        }
        double expected = problem.expected(i);
        if (!(Math.abs(run.output(i) - expected) <= problem.allowed(i, expected))) {
          wrong++;
        }
      }
      assertEquals(0, wrong, () -> "%s %s".formatted(candidate.name(), candidate.precision()));
      run.poison();
      assertTrue(Float.isNaN(run.output(problem.outputs() - 1)), "not those of the run before");
      Candidate.Resources taken = run.resources();
      return taken == null ? new Candidate.Resources(0, 0, 0, 0) : taken;
    }
  }

  @Test
  void everyBlockSizeIsRight() {
    List<String> ran = new ArrayList<>();
    for (Operation operation : List.of(Operation.LAYERNORM, Operation.SOFTMAX, Operation.GELU)) {
      for (Precision precision : Precision.values()) {
        for (Candidate candidate : device.sweep(operation, precision)) {
          int threads = Integer.parseInt(candidate.name().split("@", -1)[1]);
          String refusal = candidate.refuses(awkward(operation));
          if (refusal.isEmpty()) {
            assertEquals(threads, assertRight(candidate, awkward(operation)).threads());
          } else {
            assertTrue(refusal.matches("compiled for blocks of up to (128|256) threads"), refusal);
          }
          if (refusal.isEmpty() && precision == Precision.F32) {
            ran.add(candidate.name());
          }
        }
      }
    }
    assertEquals(
        "v1@64 v1@128 v2@64 v2@128 v2@256 v2@512 v2@1024 v3@64 v3@128"
            + " softmax@64 softmax@128 softmax@256 softmax@512 softmax@1024"
            + " v0_activate@64 v0_activate@128 v0_activate@256"
            + " activate@64 activate@128 activate@256",
        String.join(" ", ran));
  }

  @Test
  void othersSayThatTheirBlockSizeIsCompiledIn() {
    Shape shape = Shape.of(Operation.LINEAR, 4, 128, 64);
    for (Measurement m : compare(device::sweep, shape, Precision.F32)) {
      assertEquals(Status.LEFT_OUT, m.status());
      assertEquals("its block size is compiled in", m.why());
    }
  }

  @Test
  void refusalsAreThoseOfTheKernels() {
    assertWhy(Shape.of(Operation.LINEAR, 9, 36, 8), Precision.F16, "v4", "not a multiple of 8");
    assertWhy(Shape.of(Operation.LINEAR, 9, 36, 8), Precision.INT8, "gemv", "takes 1 to 8 rows");
    assertWhy(Shape.of(Operation.LINEAR, 8, 36, 8), Precision.F16, "gemv", "not a multiple of 8");
    assertWhy(Shape.of(Operation.LAYERNORM, 2, 12), Precision.F32, "v3", "not a multiple of 8");
    for (String variant : List.of("v1", "v4")) {
      assertWhy(Shape.of(Operation.ATTENTION, 5, 1, 12), Precision.F16, variant, "heads 12 wide");
    }
    assertWhy(Shape.of(Operation.ATTENTION, 5, 1, 96), Precision.BF16, "v5", "up to 80");
    assertWhy(Shape.of(Operation.MAP, 3, 1, 136), Precision.F32, "v2", "heads 136 wide");
    assertWhy(Shape.of(Operation.DECODE_ATTENTION, 3, 1, 4), Precision.F32, "v1", "heads 4 wide");
    // which the launch alone knows
    assertWhy(Shape.of(Operation.LINEAR, 524_281, 8, 1), Precision.F16, "v1", "rows is 524281");
  }

  private void assertWhy(Shape shape, Precision precision, String variant, String words) {
    Measurement m =
        KernelComparison.run(
                device,
                device::candidates,
                List.of(shape),
                List.of(precision),
                List.of(variant),
                FEW,
                part -> true)
            .getFirst();
    assertEquals(Status.LEFT_OUT, m.status(), m.why());
    assertTrue(m.why().contains(words), m.why());
  }

  @Test
  void aCardThatIsTooOldForAVariant() {
    EmulatedGpu.require();
    device.close();
    EmulatedGpu.card(75, -1, -1, -1);
    device = CudaDevice.open(0);
    String old = "needs compute capability 8.0 and later, this card has 7.5";
    assertWhy(Shape.of(Operation.ATTENTION, 8, 1, 64), Precision.F16, "v4", old);
    assertWhy(Shape.of(Operation.MAP, 8, 1, 64), Precision.F16, "v3", old);
    assertWhy(Shape.of(Operation.LINEAR, 8, 64, 64), Precision.F32, "v4", old);
  }

  /** The inputs of another problem: what comes out is right, but not the answer. */
  @Test
  void whatIsWrongIsSeen() {
    for (Operation operation : Operation.values()) {
      Shape shape = awkward(operation);
      for (Measurement m : compare(this::mistaken, shape, Precision.F32)) {
        assertEquals(Status.WRONG, m.status(), operation + " " + m.variant());
        assertTrue(m.why().contains(" outputs, the first: output "), m.why());
        assertTrue(m.microseconds().isEmpty());
      }
    }
  }

  private List<Candidate> mistaken(Operation operation, Precision precision) {
    return device.candidates(operation, precision).stream()
        .<Candidate>map(MistakenCandidate::new)
        .toList();
  }

  private record MistakenCandidate(Candidate right) implements Candidate {
    @Override
    public Run prepare(Problem problem) {
      return right.prepare(new Problem(problem.shape(), Precision.F16)); // other numbers
    }

    @Override
    public String name() {
      return right.name();
    }

    @Override
    public String idea() {
      return right.idea();
    }

    @Override
    public Precision precision() {
      return right.precision();
    }

    @Override
    public String refuses(Shape shape) {
      return right.refuses(shape);
    }

    @Override
    public Problem.Work work(Shape shape) {
      return right.work(shape);
    }
  }

  @Test
  void noRoomIsTheCandidatesMatter() {
    EmulatedGpu.require();
    for (int after = 0; after < 4; after++) { // x, bias, weight, y
      EmulatedGpu.failAllocation(after);
      int live = EmulatedGpu.liveAllocations();
      List<Measurement> all =
          KernelComparison.run(
              device,
              device::candidates,
              List.of(Shape.of(Operation.LINEAR, 4, 128, 64)),
              List.of(Precision.F32),
              List.of("v1", "gemv"),
              FEW,
              part -> true);
      assertFalse(EmulatedGpu.failureIsToCome());
      assertEquals(live, EmulatedGpu.liveAllocations());
      assertEquals(Status.LEFT_OUT, all.getFirst().status());
      assertTrue(all.getFirst().why().startsWith("no room: out of GPU memory"), all::toString);
      assertEquals(Status.OK, all.getLast().status(), all.getLast()::why);
    }
  }

  @Test
  void aLostDeviceEndsAllAndLeavesWhatWasMeasured() {
    EmulatedGpu.require();
    List<Measurement> heard = new ArrayList<>();
    KernelComparison.Listener listener =
        new KernelComparison.Listener() {
          @Override
          public boolean progress(double part) {
            if (part > 0.55 && part < 0.65) { // the second sample of the second shape
              EmulatedGpu.failKernel(0, FAULT);
            }
            return true;
          }

          @Override
          public void measured(List<Measurement> measurements) {
            heard.addAll(measurements);
          }
        };
    BackendException lost =
        assertThrows(
            BackendException.class,
            () ->
                KernelComparison.run(
                    device,
                    device::candidates,
                    Shape.parse(Operation.SOFTMAX, "R=4,8,C=64", List.of()),
                    List.of(Precision.F32),
                    List.of(),
                    FEW,
                    listener));
    String why = String.valueOf(lost.getMessage());
    assertTrue(why.contains("the GPU must be closed"), why);
    assertTrue(why.contains("it last ran sample_softmax_f32"), why);
    assertEquals(
        List.of("R=4 C=64 OK", "R=8 C=64 WRONG"),
        heard.stream().map(m -> m.shape() + " " + m.status()).toList());
  }

  @Test
  void whatIsUsualFitsTheDevice() {
    assertEquals(EMULATED, device.emulated());
    assertEquals("cuda", device.backend());
    for (Operation operation : Operation.values()) {
      List<Shape> shapes = device.usualShapes(operation);
      assertNotEquals(List.of(), shapes);
      long most = shapes.stream().mapToLong(s -> s.sizes().getFirst()).max().orElseThrow();
      assertEquals(EMULATED, most <= 64, operation + " " + most);
    }
    assertTrue(device.candidates(Operation.ATTENTION, Precision.INT8).isEmpty());
    assertEquals(
        List.of("gemv_v0", "gemv"),
        device.candidates(Operation.LINEAR, Precision.INT8).stream().map(Candidate::name).toList());
  }

  @Test
  void noSuchCard() {
    BackendException none = assertThrows(BackendException.class, () -> CudaDevice.open(9));
    String why = String.valueOf(none.getMessage());
    assertTrue(why.contains("there is no GPU 9"), why);
  }
}
