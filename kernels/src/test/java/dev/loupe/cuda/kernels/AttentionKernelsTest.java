package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.KernelChoice;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.emulator.Emulated;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.Emulator.Schedule;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.emulator.Refusal;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Every variant in every element against a reference in double precision. */
@OnDevice
class AttentionKernelsTest {
  private static final int HEADS = 2;
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
    boolean roundsP = name.equals("v4") || name.equals("v5");
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
    int largest = name.equals("v5") ? 80 : 128;
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

  @Test
  void prefersTensorCoresForHalves() {
    assertEquals("v3", best(Element.F32, 1));
    assertEquals("v4", best(Element.F16, 1));
    assertEquals("v4", best(Element.BF16, 1));
  }

  /** Version 1 has a slice of its grid for each head of each segment. */
  @Test
  void thePlainestServesAsLongAsItsGridDoes() {
    try {
      gpu.use(Serving.PLAIN);
      assertEquals("v1", best(Element.F16, Segments.MAX_GRID / HEADS));
      assertEquals("v2", best(Element.F16, Segments.MAX_GRID / HEADS + 1));
    } finally {
      gpu.use(KernelChoice.UNTRIED);
    }
  }

  private static String best(Element element, int count) {
    CacheShape shape = new CacheShape(1, HEADS, 16, 64);
    try (Segments segments = new Segments(gpu, count);
        AttentionKernels kernels = new AttentionKernels(gpu, shape, element)) {
      segments.set(IntStream.range(0, count).mapToObj(row -> new Segment(row, 1, 0, 0)).toList());
      return kernels.variantFor(segments).name();
    }
  }

  @Test
  void refusesSegmentsThatCannotBe() {
    assertIllegal("0 rows", () -> new Segment(0, 0, 0, 0));
    assertIllegal("row -1", () -> new Segment(-1, 1, 0, 0));
    assertIllegal("position -1", () -> new Segment(0, 1, 0, -1));
    assertIllegal("more than an int", () -> new Segment(0, 2, 0, Integer.MAX_VALUE - 1));
    try (Segments segments = new Segments(gpu, 2)) {
      assertMessage(
          "starts at row 4, before row 5",
          () -> segments.set(List.of(new Segment(0, 5, 0, 0), new Segment(4, 1, 1, 0))));
      Segment one = new Segment(0, 1, 0, 0);
      assertMessage("3, not in 0 .. 2", () -> segments.set(List.of(one, one, one)));
    }
  }

  @Test
  void refusesWhatItCannotDo() {
    CacheShape shape = new CacheShape(1, HEADS, 16, 88);
    assertMessage("i8", () -> new AttentionKernels(gpu, shape, Element.I8));
    int width = shape.width();
    try (AttentionKernels attention = new AttentionKernels(gpu, shape, Element.F16);
        Segments segments = new Segments(gpu, 1);
        DeviceBuffer qkv = gpu.allocate(Element.F16, 4L * 3 * width + 8);
        DeviceBuffer kv = gpu.allocate(Element.F16, shape.elements());
        DeviceBuffer y = gpu.allocate(Element.F16, 4L * width);
        DeviceBuffer lse = gpu.allocate(Element.F32, 4L * HEADS)) {
      var good = new AttentionKernels.Buffers(qkv, kv, kv, y, lse);
      Variant v4 = AttentionKernels.V4;
      segments.set(List.of());
      attention.run(v4, segments, true, 1, good); // nothing to do
      segments.set(List.of(new Segment(0, 5, 0, 0)));
      assertMessage(
          "attention: qkv has 2120 elements, needs 2640",
          () -> attention.run(v4, segments, true, 1, good));
      segments.set(List.of(new Segment(0, 4, 1, 0)));
      assertMessage("sequence of a segment: 1", () -> attention.run(v4, segments, true, 1, good));
      segments.set(List.of(new Segment(0, 4, 0, 13)));
      assertMessage("keys of a segment: 17", () -> attention.run(v4, segments, true, 1, good));
      segments.set(List.of(new Segment(0, 4, 0, 12)));
      attention.run(v4, segments, true, 1, good);
      assertMessage("scale -1.0", () -> attention.run(v4, segments, true, -1, good));
      assertMessage(
          "attention v5: heads 88 wide: it takes head size a multiple of 8 up to 80",
          () -> attention.run(AttentionKernels.V5, segments, true, 1, good));
      var swapped = new AttentionKernels.Buffers(qkv, kv, kv, lse, y);
      assertMessage(
          "attention: y holds F32, not F16", () -> attention.run(v4, segments, true, 1, swapped));
      var odd = new AttentionKernels.Buffers(qkv.slice(1, qkv.elements() - 1), kv, kv, y, lse);
      assertMessage("no multiple of 16", () -> attention.run(v4, segments, true, 1, odd));
      var none = nothing(qkv, kv, lse);
      assertMessage("attention: y is null", () -> attention.run(v4, segments, true, 1, none));
    }
    try (AttentionKernels floats = new AttentionKernels(gpu, shape, Element.F32)) {
      assertTrue(
          floats.reason(AttentionKernels.V4).contains("f32 on compute capability"),
          floats.reason(AttentionKernels.V4));
    }
  }

  @SuppressWarnings("NullAway") // on purpose
  private static AttentionKernels.Buffers nothing(
      DeviceBuffer qkv, DeviceBuffer kv, DeviceBuffer lse) {
    return new AttentionKernels.Buffers(qkv, kv, kv, null, lse);
  }

  private static void assertIllegal(String part, Executable what) {
    String message =
        String.valueOf(assertThrows(IllegalArgumentException.class, what).getMessage());
    assertTrue(message.contains(part), message);
  }

  private static void assertMessage(String part, Runnable what) {
    String message = Refusal.ofArguments(what);
    assertTrue(message.contains(part), message);
  }
}
