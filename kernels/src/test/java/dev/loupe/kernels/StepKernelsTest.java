package dev.loupe.kernels;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.loupe.kernels.SampleKernels.Chosen;
import dev.loupe.kernels.StepKernels.Place;
import java.util.List;
import java.util.Random;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@OnDevice
class StepKernelsTest {
  private static final int ROOM = 300; // rows of every buffer

  private static Gpu gpu;
  private static StepKernels kernels;

  @BeforeAll
  static void open() {
    gpu = Emulator.open();
    kernels = new StepKernels(gpu);
  }

  @AfterAll
  static void close() {
    gpu.close();
  }

  @AfterEach
  void forward() {
    Emulator.forward();
  }

  /** What a step reads and writes, with room for more rows than it has; all poisoned. */
  private static final class Step implements AutoCloseable {
    final DeviceBuffer ids = buffer(Element.I32, 1);
    final DeviceBuffer logprobs = buffer(Element.F32, 1);
    final DeviceBuffer ranks = buffer(Element.I32, 1);
    final DeviceBuffer errors = buffer(Element.I32, 1);
    final DeviceBuffer sequences = buffer(Element.I32, 1);
    final DeviceBuffer positions = buffer(Element.I32, 1);
    final DeviceBuffer keys = buffer(Element.I32, 1);
    final DeviceBuffer segments = buffer(Element.I32, 4);
    final DeviceBuffer results = buffer(Element.I32, 4);

    private static DeviceBuffer buffer(Element element, int columns) {
      DeviceBuffer buffer = gpu.allocate(element, (long) ROOM * columns);
      buffer.fill((byte) 0xff);
      return buffer;
    }

    Chosen chosen() {
      return new Chosen(ids, logprobs, ranks, errors);
    }

    Place place() {
      return new Place(sequences, positions, keys, segments);
    }

    @Override
    public void close() {
      Stream.of(ids, logprobs, ranks, errors, sequences, positions, keys, segments, results)
          .forEach(DeviceBuffer::close);
    }
  }

  private static int[] read(DeviceBuffer buffer) {
    int[] values = new int[(int) buffer.elements()];
    buffer.download(values);
    return values;
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 31, 33, 128, 129, 200, ROOM})
  void eachStepMovesOnByOneAndHandsOverWhatItChose(int rows) {
    Random random = new Random(rows);
    int[] sequences = random.ints(rows, 0, 1000).toArray();
    int[] start = random.ints(rows, 0, 1000).toArray();
    List<Runnable> schedules = Schedules.others();
    try (Step step = new Step()) {
      step.sequences.upload(sequences);
      step.positions.upload(start);
      for (int n = 1; n <= schedules.size(); n++) {
        schedules.get(n - 1).run();
        int[] ids = random.ints(rows).toArray();
        int[] ranks = random.ints(rows).toArray();
        int[] errors = random.ints(rows, 0, 3).toArray();
        float[] logprobs = new float[rows];
        for (int r = 0; r < rows; r++) {
          logprobs[r] = errors[r] == 0 ? -random.nextFloat() : Float.NaN;
        }
        step.ids.upload(ids);
        step.ranks.upload(ranks);
        step.errors.upload(errors);
        step.logprobs.upload(logprobs);
        step.results.fill((byte) 0xff);
        kernels.advance(step.chosen(), step.place(), step.results, rows);

        int[] positions = read(step.positions);
        int[] keys = read(step.keys);
        for (int r = 0; r < ROOM; r++) {
          boolean row = r < rows;
          assertEquals(row ? start[r] + n : -1, positions[r], "position of row " + r);
          assertEquals(row ? start[r] + n + 1 : -1, keys[r], "keys of row " + r);
        }
        int moved = n;
        assertRows(
            rows, read(step.segments), r -> new int[] {r, 1, sequences[r], start[r] + moved});
        assertRows(
            rows,
            read(step.results),
            r -> new int[] {ids[r], errors[r], ranks[r], Float.floatToIntBits(logprobs[r])});
      }
      assertEquals(sequences[rows - 1], read(step.sequences)[rows - 1]);
    }
  }

  private interface Row {
    int[] of(int r);
  }

  private static void assertRows(int rows, int[] got, Row expected) {
    for (int i = 0; i < got.length; i++) {
      int r = i / 4;
      assertEquals(
          r < rows ? expected.of(r)[i % 4] : -1, got[i], "row %d, part %d".formatted(r, i % 4));
    }
  }

  /** What it writes as segments is what the host would have written for the next step. */
  @Test
  void segmentsAreThoseOfTheHost() {
    try (Step step = new Step();
        Segments host = new Segments(gpu, 3)) {
      step.sequences.upload(new int[] {2, 0, 7});
      step.positions.upload(new int[] {0, 9, 41});
      kernels.advance(step.chosen(), step.place(), step.results, 3);
      host.set(
          List.of(new Segment(0, 1, 2, 1), new Segment(1, 1, 0, 10), new Segment(2, 1, 7, 42)));
      int[] expected = read(host.buffer());
      int[] got = read(step.segments);
      IntStream.range(0, expected.length)
          .forEach(i -> assertEquals(expected[i], got[i], "at " + i));
    }
  }

  @Test
  void refusesWhatDoesNotFit() {
    DeviceBuffer closed = gpu.allocate(Element.F32, ROOM);
    closed.close();
    try (Step step = new Step();
        DeviceBuffer floats = gpu.allocate(Element.F32, ROOM);
        DeviceBuffer few = gpu.allocate(Element.I32, 7)) {
      Chosen chosen = step.chosen();
      Place place = step.place();
      assertRefused(
          "advance: rows is 0, not between 1 and 2147483519",
          () -> kernels.advance(chosen, place, step.results, 0));
      assertRefused(
          "advance: ids has 300 elements, needs 301",
          () -> kernels.advance(chosen, place, step.results, ROOM + 1));
      assertRefused(
          "advance: results has 7 elements, needs 8", () -> kernels.advance(chosen, place, few, 2));
      assertRefused(
          "advance: segments has 7 elements, needs 8",
          () ->
              kernels.advance(
                  chosen,
                  new Place(step.sequences, step.positions, step.keys, few),
                  step.results,
                  2));
      assertRefused(
          "advance: keys holds F32, not I32",
          () ->
              kernels.advance(
                  chosen,
                  new Place(step.sequences, step.positions, floats, step.segments),
                  step.results,
                  2));
      assertRefused(
          "advance: logprobs holds I32, not F32",
          () ->
              kernels.advance(
                  new Chosen(step.ids, few, step.ranks, step.errors), place, step.results, 2));
      assertRefused(
          "advance: two of its buffers are one",
          () ->
              kernels.advance(
                  chosen,
                  new Place(step.sequences, step.positions, step.positions, step.segments),
                  step.results,
                  2));
      assertRefused(
          "advance: logprobs is closed",
          () ->
              kernels.advance(
                  new Chosen(step.ids, closed, step.ranks, step.errors), place, step.results, 2));
    }
  }

  private static void assertRefused(String message, Runnable call) {
    assertEquals(message, assertThrows(IllegalArgumentException.class, call::run).getMessage());
  }
}
