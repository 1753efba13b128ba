package dev.loupe.bench.kernel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.ops.Precision;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/** Every candidate on the CPU against double precision; times are not looked at. */
class CpuDeviceTest {
  /** No sizes but those that tiles are not made for, one of each at least. */
  private static List<Shape> awkward(Operation operation) {
    return switch (operation) {
      case ATTENTION, MAP, DECODE_ATTENTION ->
          List.of(
              Shape.of(operation, 1, 1, 1),
              Shape.of(operation, 31, 3, 7),
              Shape.of(operation, 65, 2, 64),
              Shape.of(operation, 200, 1, 33));
      case LINEAR ->
          List.of(
              Shape.of(operation, 1, 1, 1),
              Shape.of(operation, 1, 65, 33),
              Shape.of(operation, 7, 200, 31),
              Shape.of(operation, 33, 64, 100));
      case LAYERNORM, SOFTMAX, GELU ->
          List.of(
              Shape.of(operation, 1, 1),
              Shape.of(operation, 3, 31),
              Shape.of(operation, 65, 33),
              Shape.of(operation, 2, 1025));
    };
  }

  /** Every output, and not just those that a comparison looks at. */
  private static void assertRight(Candidate candidate, Problem problem) {
    String what = candidate.name() + " on " + problem.shape() + " in " + candidate.precision();
    assertEquals("", candidate.refuses(problem.shape()), what);
    int tokens = problem.shape().sizes().getFirst();
    boolean map = problem.shape().operation() == Operation.MAP;
    try (Candidate.Run run = candidate.prepare(problem)) {
      for (int turn = 0; turn < 2; turn++) { // what it does must not hang on the run before
        run.poison();
        assertTrue(Float.isNaN(run.output(0)), what);
        assertTrue(run.microseconds() > 0, what);
        for (long i = 0; i < problem.outputs(); i++) {
          if (map && i % tokens > i / tokens % tokens) {
            continue;
          }
          double expected = problem.expected(i);
          float actual = run.output(i);
          boolean near = Math.abs(actual - expected) <= problem.allowed(i, expected);
          assertTrue(near, what + ": output " + i + " is " + actual + ", not " + expected);
        }
      }
    }
  }

  @Tag("sweep")
  @ParameterizedTest
  @EnumSource
  void everyCandidateIsRightOnAwkwardShapes(Operation operation) {
    int candidates = 0;
    try (CpuDevice device = new CpuDevice(3, 0)) {
      for (Precision precision : Precision.values()) {
        List<Candidate> ladder = device.candidates(operation, precision);
        assertEquals(
            precision == Precision.F32 || operation == Operation.LINEAR, !ladder.isEmpty());
        for (Shape shape : awkward(operation)) {
          Problem problem = new Problem(shape, precision);
          ladder.forEach(candidate -> assertRight(candidate, problem));
          candidates += ladder.size();
        }
      }
    }
    assertTrue(candidates >= 4 * 4, candidates + " candidates and shapes");
  }

  private static List<String> names(Device device, Operation operation, Precision precision) {
    return device.candidates(operation, precision).stream().map(Candidate::name).toList();
  }

  @Test
  void theLadderEndsWithWhatThereIs() {
    try (CpuDevice device = new CpuDevice(1, 256)) {
      assertEquals(
          List.of("naive", "online", "tiled", "vector"),
          names(device, Operation.ATTENTION, Precision.F32));
      assertEquals(List.of("tiled", "vector"), names(device, Operation.LINEAR, Precision.BF16));
      assertTrue(device.name().contains("256-bit vectors, 1 thread"), device.name());
    }
    try (CpuDevice device = new CpuDevice(2, 128)) {
      assertEquals(
          List.of("naive", "plain", "vector", "threads"),
          names(device, Operation.GELU, Precision.F32));
    }
  }

  @ParameterizedTest
  @EnumSource
  void theUsualShapesAreTaken(Operation operation) {
    try (CpuDevice device = new CpuDevice(2, 0)) {
      List<Shape> usual = device.usualShapes(operation);
      assertTrue(usual.size() > 1);
      for (Candidate candidate : device.candidates(operation, Precision.F32)) {
        usual.forEach(shape -> assertEquals("", candidate.refuses(shape), candidate.name()));
        assertFalse(candidate.idea().isBlank());
      }
    }
  }

  @Test
  void whatWouldTakeAgesOrHasNoRoomIsRefused() {
    try (CpuDevice device = new CpuDevice(2, 0)) {
      List<Candidate> ladder = device.candidates(Operation.ATTENTION, Precision.F32);
      Shape large = Shape.of(Operation.ATTENTION, 16384, 12, 64); // 420e9 operations
      assertEquals("would take about 420 seconds a run", ladder.getFirst().refuses(large));
      assertEquals("", ladder.getLast().refuses(large));
      List<Candidate> maps = device.candidates(Operation.MAP, Precision.F32);
      Shape huge = Shape.of(Operation.MAP, 1 << 20, 1, 1); // 2 TB of pairs
      assertTrue(
          maps.getLast().refuses(huge).startsWith("needs 4194"), maps.getLast().refuses(huge));
    }
  }

  @Test
  void weightsHaveTheSizeOfTheirType() {
    Shape shape = Shape.of(Operation.LINEAR, 1, 100, 10);
    List<Double> bytes = new ArrayList<>();
    try (CpuDevice device = new CpuDevice(1, 0)) {
      for (Precision precision : Precision.values()) {
        double others = 4 * (100 + 10) + 4 * 10;
        bytes.add(
            device.candidates(Operation.LINEAR, precision).getLast().work(shape).bytes() - others);
      }
    }
    // of int8 a byte each, and a scale for each output and each of two groups of inputs
    assertEquals(
        List.of(Precision.F32, Precision.F16, Precision.BF16, Precision.INT8),
        List.of(Precision.values()));
    assertEquals(List.of(4000.0, 2000.0, 2000.0, 1000.0 + 80), bytes);
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "0 | 0 | 0 threads; at least 1 is needed",
        "1 | 100 | vectors of 100 bits: there are 128, 256 and 512",
        "1 | -1 | vectors of -1 bits: there are 128, 256 and 512"
      })
  void whatIsNoDevice(int threads, int bits, String message) {
    IllegalArgumentException e =
        assertThrows(IllegalArgumentException.class, () -> new CpuDevice(threads, bits));
    assertEquals(message, e.getMessage());
  }

  @Test
  void eachCandidateHasClassesOfItsOwn() {
    try (CpuBackend one = CpuBackend.product(1, 0, Precision.F32);
        CpuBackend other = CpuBackend.product(1, 128, Precision.F32)) {
      assertFalse(one.getClass() == other.getClass());
      assertEquals(one.getClass().getName(), other.getClass().getName());
      try (var arena = one.arena();
          var otherArena = other.arena()) {
        assertFalse(arena.getClass() == otherArena.getClass());
      }
    }
  }
}
