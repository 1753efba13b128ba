package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.emulator.Emulated;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.Emulator.Schedule;
import dev.loupe.cuda.emulator.OnDevice;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Every variant in every element against a reference in double precision. */
@OnDevice
class AttentionKernelsTest {
  static final int HEADS = 2;
  private static final int CAPACITY = 216;

  /**
   * Lengths around the warps, tiles of 32 and 64 keys and of 64 and 128 rows; sequences out of
   * order, at the start and behind a cached prefix; rows that nobody has between them and at the
   * end.
   */
  private static final List<Segment> PASS =
      List.of(
          new Segment(2, 65, 3, 0),
          new Segment(67, 33, 0, 31),
          new Segment(100, 1, 4, 64),
          new Segment(101, 1, 2, 0),
          new Segment(104, 130, 1, 70),
          new Segment(234, 7, 5, 3),
          new Segment(241, 31, 6, 33));

  private static final int ROWS = 275;

  private static Gpu gpu;

  @BeforeAll
  static void open() {
    gpu = Emulator.open();
  }

  @AfterAll
  static void close() {
    gpu.close();
  }

  @BeforeEach
  void forward() {
    Emulator.options(Schedule.FORWARD, 0, false);
  }

  /** What came back. */
  @SuppressWarnings("ArrayRecordComponent") // not compared
  private record Result(float[] y, float[] lse) {}

  private static List<Arguments> variants() {
    List<Arguments> list = new ArrayList<>();
    for (Variant variant : AttentionKernels.VARIANTS) {
      variant.elements().stream().sorted().forEach(e -> list.add(Arguments.of(variant.name(), e)));
    }
    return list;
  }

  private static Variant variant(String name) {
    return AttentionKernels.VARIANTS.stream()
        .filter(v -> v.name().equals(name))
        .findFirst()
        .orElseThrow();
  }

  private static int sequences(List<Segment> segments) {
    return 1 + segments.stream().mapToInt(Segment::sequence).max().orElseThrow();
  }

  /** Cache cells from the keys of a segment on are NaN, and so are the k and v parts of qkv. */
  private static CachedAttention problem(
      Element element, List<Segment> segments, int rows, int d, float spread) {
    int[] filled = new int[sequences(segments)];
    segments.forEach(s -> filled[s.sequence()] = s.keys());
    CacheShape shape = new CacheShape(filled.length, HEADS, CAPACITY, d);
    return new CachedAttention(shape, element, element, rows, filled, spread, 1000 + d);
  }

  private static Result run(CachedAttention a, String name, List<Segment> list, boolean causal) {
    CacheShape shape = a.shape;
    try (AttentionKernels attention = new AttentionKernels(gpu, shape, a.cache);
        Segments segments = new Segments(gpu, list.size());
        DeviceBuffer qkv = gpu.allocate(a.activations, a.qkv.length);
        DeviceBuffer k = gpu.allocate(a.cache, shape.elements());
        DeviceBuffer v = gpu.allocate(a.cache, shape.elements());
        DeviceBuffer y = gpu.allocate(a.activations, (long) a.rows * shape.width());
        DeviceBuffer lse = gpu.allocate(Element.F32, (long) a.rows * shape.heads())) {
      segments.set(list);
      qkv.upload(a.qkv);
      k.upload(a.k);
      v.upload(a.v);
      y.fill((byte) 0xff);
      lse.fill((byte) 0xff);
      attention.run(
          variant(name),
          segments,
          causal,
          a.scale,
          new AttentionKernels.Buffers(qkv, k, v, y, lse));
      Result result =
          new Result(new float[a.rows * shape.width()], new float[a.rows * shape.heads()]);
      y.download(result.y);
      lse.download(result.lse);
      return result;
    }
  }

  /**
   * How far P rounded to the input's type, as the tensor cores take it, moves y: 2^-11 or 2^-8 of
   * each term, and 2^-25 of a value where an f16 P is below its least normal number (it is rounded
   * before the division by l, which is at least 1).
   */
  private static double roundedPError(
      CachedAttention a, double[] p, int sequence, int head, int column) {
    double relative = CachedAttention.roundingOf(a.cache);
    int d = a.shape.headSize();
    int base = (sequence * a.shape.heads() + head) * a.shape.capacity() * d + column;
    double error = 0;
    for (int key = 0; key < p.length; key++) {
      error += (relative * p[key] + 0x1p-25) * Math.abs(a.v[base + key * d]);
    }
    return error;
  }

  /** Holds each value to its bound. */
  private static void compare(
      CachedAttention a, String name, List<Segment> segments, boolean causal, Result result) {
    boolean roundsP = Set.of("v4", "v5", "v6").contains(name);
    double worst = 0;
    int d = a.shape.headSize();
    for (Segment s : segments) {
      for (int i = 0; i < s.rows(); i++) {
        int keys = causal ? s.firstPosition() + i + 1 : s.keys();
        for (int head = 0; head < a.shape.heads(); head++) {
          int row = s.firstRow() + i;
          String where = "%s D %d, %s, row %d, head %d: ".formatted(name, d, s, i, head);
          CachedAttention.Row want = a.row(row, head, s.sequence(), keys);
          int at = row * a.shape.heads() + head;
          worst = check(worst, where + "lse", want.lse, result.lse[at], want.lseError());
          for (int j = 0; j < d; j++) {
            double bound = want.yError(j);
            bound += roundsP ? roundedPError(a, want.p, s.sequence(), head, j) : 0;
            worst = check(worst, where + "y " + j, want.y(j), result.y[at * d + j], bound);
          }
        }
      }
    }
    System.out.printf(
        "attention %s %s D %d: worst error %.2f of its bound%n", name, a.cache.suffix(), d, worst);
  }

  private static double check(double worst, String what, double want, double got, double bound) {
    double error = Math.abs(got - want);
    assertTrue(error <= bound, () -> what + ": " + got + " for " + want + ", bound " + bound);
    return Math.max(worst, error / bound);
  }

  /** Rows without a segment keep their NaN. */
  private static void untouched(CachedAttention a, List<Segment> segments, Result result) {
    boolean[] has = new boolean[a.rows];
    segments.forEach(s -> Arrays.fill(has, s.firstRow(), s.endRow(), true));
    int width = a.shape.width();
    for (int row = 0; row < a.rows; row++) {
      for (int i = 0; !has[row] && i < width; i++) {
        assertTrue(Float.isNaN(result.y[row * width + i]), "y of row " + row);
      }
      for (int head = 0; !has[row] && head < HEADS; head++) {
        assertTrue(Float.isNaN(result.lse[row * HEADS + head]), "lse of row " + row);
      }
    }
  }

  private static void runAndCompare(CachedAttention a, String name, List<Segment> segments) {
    for (boolean causal : new boolean[] {true, false}) {
      Result result = run(a, name, segments, causal);
      compare(a, name, segments, causal, result);
      untouched(a, segments, result);
    }
  }

  @ParameterizedTest
  @MethodSource("variants")
  void manySegmentsEqualTheReference(String name, Element element) {
    runAndCompare(problem(element, PASS, ROWS, 64, 1), name, PASS);
  }

  @ParameterizedTest
  @MethodSource("variants")
  void aLongSequenceEqualsTheReference(String name, Element element) {
    List<Segment> segments = List.of(new Segment(0, 513, 0, 0));
    CacheShape shape = new CacheShape(1, 1, 520, 64);
    CachedAttention a = new CachedAttention(shape, element, element, 513, new int[] {513}, 1, 5);
    compare(a, name, segments, true, run(a, name, segments, true));
  }

  /** Head sizes at and between the widths that the kernels are made for. */
  @ParameterizedTest
  @MethodSource("variants")
  void headSizesEqualTheReference(String name, Element element) {
    List<Segment> segments =
        List.of(new Segment(0, 7, 1, 0), new Segment(7, 66, 0, 9), new Segment(74, 33, 2, 31));
    int largest = name.equals("v6") ? 64 : name.equals("v5") ? 80 : 128;
    for (int d : new int[] {8, 16, 24, 32, 40, 72, 80, 88, 96, 104, 128}) {
      if (d <= largest) {
        runAndCompare(problem(element, segments, 108, d, 1), name, segments);
      }
    }
  }

  @ParameterizedTest
  @MethodSource("variants")
  void standsLargeScores(String name, Element element) {
    List<Segment> segments = List.of(new Segment(0, 70, 0, 0));
    CachedAttention a = problem(element, segments, 70, 64, 30);
    double largest = 0;
    for (int row = 0; row < a.rows; row++) {
      for (double score : a.row(row, 0, 0, 70).score) {
        largest = Math.max(largest, Math.abs(score));
      }
    }
    assertTrue(largest > 80, "scores up to " + largest);
    runAndCompare(a, name, segments);
  }

  /** The order of threads and the moment of copies change nothing, not one bit. */
  @ParameterizedTest
  @MethodSource("variants")
  void bitsDoNotDependOnTheSchedule(String name, Element element) {
    List<Segment> segments = List.of(new Segment(0, 200, 0, 0), new Segment(200, 33, 1, 70));
    CachedAttention a = problem(element, segments, 233, 64, 1);
    Result first = run(a, name, segments, true);
    compare(a, name, segments, true, first);
    for (Schedule schedule : Schedule.values()) {
      for (boolean eager : new boolean[] {false, true}) {
        long seed = eager ? 11 : 7;
        Emulator.options(schedule, seed, eager);
        Result again = run(a, name, segments, true);
        String how = "%s, seed %d, %s".formatted(schedule, seed, eager ? "eager" : "lazy");
        assertArrayEquals(first.y, again.y, how);
        assertArrayEquals(first.lse, again.lse, how);
      }
    }
  }

  /** Continuing behind a cached prefix gives the rows that one long pass gives. */
  @ParameterizedTest
  @MethodSource("variants")
  void rowsBehindACachedPrefixEqualThoseOfOnePass(String name, Element element) {
    List<Segment> whole = List.of(new Segment(0, 150, 0, 0));
    CachedAttention a = problem(element, whole, 150, 64, 1);
    Result all = run(a, name, whole, true);
    int split = 128; // whole tiles, so that the same rows share a tile
    Result rest = run(a, name, List.of(new Segment(split, 150 - split, 0, split)), true);
    int width = a.shape.width();
    assertArrayEquals(
        Arrays.copyOfRange(all.y, split * width, 150 * width),
        Arrays.copyOfRange(rest.y, split * width, 150 * width));
  }

  @Test
  @OnDevice(emulated = true)
  void sharedMemoryMeetsNoBankConflict() {
    List<Segment> segments = List.of(new Segment(0, 130, 0, 20));
    for (int d : new int[] {16, 32, 64, 80, 96, 128}) {
      for (Variant variant :
          List.of(AttentionKernels.V3, AttentionKernels.V4, AttentionKernels.V5)) {
        if (variant.equals(AttentionKernels.V5) && d > 80) {
          continue;
        }
        long before = Emulated.bankConflicts();
        run(problem(Element.F16, segments, 130, d, 1), variant.name(), segments, true);
        assertEquals(before, Emulated.bankConflicts(), variant.name() + " D " + d);
      }
    }
  }
}
