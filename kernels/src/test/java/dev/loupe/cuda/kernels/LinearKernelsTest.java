package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.emulator.Close;
import dev.loupe.cuda.emulator.Emulated;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.kernels.LinearEpilogue.Output;
import dev.loupe.cuda.kernels.LinearEpilogue.QkvAppend;
import dev.loupe.cuda.kernels.LinearEpilogue.Residual;
import dev.loupe.cuda.kernels.LinearProblem.Expected;
import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

@OnDevice
public class LinearKernelsTest extends LinearFixture {
  /** R, in, out: around warps, tiles of 16, 64 and 128, and chunks of 16 bytes. */
  private static final int[][] SHAPES = {
    {1, 8, 1}, {7, 24, 33}, {31, 64, 65}, {33, 72, 64}, {65, 136, 129}, {200, 48, 96}, {513, 32, 40}
  };

  /** Rows of W that are no multiples of 16 bytes; not for v4. */
  private static final int[][] ODD_SHAPES = {{1, 1, 1}, {5, 3, 2}, {33, 65, 31}, {130, 18, 67}};

  private static Stream<Arguments> kernels() {
    return LinearKernels.VARIANTS.stream()
        .flatMap(
            v ->
                Stream.of(
                    Arguments.of(v, F32, F32),
                    Arguments.of(v, Element.F16, Element.F16),
                    Arguments.of(v, Element.F16, F32),
                    Arguments.of(v, Element.BF16, Element.BF16),
                    Arguments.of(v, Element.BF16, F32)));
  }

  private static float[] run(
      Variant variant,
      LinearBuffers b,
      DeviceBuffer target,
      Function<DeviceBuffer, LinearEpilogue> epilogue) {
    linear.prepare(variant, b.map, b.x, epilogue.apply(target)).run(b.problem.rows);
    return b.result(target);
  }

  private static float[] output(Variant variant, LinearBuffers b) {
    return run(variant, b, b.target(F32), t -> new Output(t, KernelActivation.NONE));
  }

  /** Compares with the reference, after {@code epilogue} has been at it. */
  private static void check(
      Variant variant,
      LinearProblem p,
      boolean withBias,
      float[] actual,
      ExpectedEpilogue epilogue) {
    boolean tensorCores = variant.name().equals("v4");
    Element narrowed = tensorCores ? p.weightElement : p.xElement;
    double[] expected = new double[actual.length];
    double[] error = new double[actual.length];
    for (int i = 0; i < actual.length; i++) {
      boolean splits = tensorCores && p.weightElement == F32;
      Expected e = p.expected(i / p.outputs, i % p.outputs, withBias, narrowed, splits);
      e = epilogue.of(i, e);
      expected[i] = e.value();
      error[i] = e.error();
    }
    Close.check("linear %s, %s".formatted(variant.name(), p), expected, actual, error);
  }

  /** What an epilogue makes of the sum at place {@code i}. */
  private interface ExpectedEpilogue {
    Expected of(int i, Expected sum);
  }

  private static int[][] shapes(Variant variant) {
    return variant.name().equals("v4")
        ? SHAPES
        : Stream.of(SHAPES, ODD_SHAPES).flatMap(Stream::of).toArray(int[][]::new);
  }

  @ParameterizedTest
  @MethodSource("kernels")
  void equalsTheReference(Variant variant, Element weight, Element x) {
    for (int[] s : shapes(variant)) {
      boolean withBias = s[0] != 7;
      LinearProblem p = new LinearProblem(weight, x, s[0], s[1], s[2], SEED + s[0]);
      try (LinearBuffers b = new LinearBuffers(gpu, p, withBias)) {
        check(variant, p, withBias, output(variant, b), (i, sum) -> sum);
      }
    }
  }

  @ParameterizedTest
  @MethodSource("kernels")
  void bitsDependNotOnTheSchedule(Variant variant, Element weight, Element x) {
    LinearProblem p = new LinearProblem(weight, x, 35, 200, 70, SEED);
    try (LinearBuffers b = new LinearBuffers(gpu, p, true)) {
      float[] forward = output(variant, b);
      check(variant, p, true, forward, (i, sum) -> sum);
      Emulator.options(Emulator.Schedule.REVERSE, SEED, true);
      assertArrayEquals(forward, output(variant, b), "reverse, eager");
      for (int seed = 1; seed <= 2; seed++) {
        Emulator.options(Emulator.Schedule.RANDOM, seed, seed == 2);
        assertArrayEquals(forward, output(variant, b), "random, seed " + seed);
      }
    }
  }

  @ParameterizedTest
  @MethodSource("kernels")
  void bitsDependOnTheRowAlone(Variant variant, Element weight, Element x) {
    LinearProblem p = new LinearProblem(weight, x, 9, 136, 68, SEED);
    try (LinearBuffers b = new LinearBuffers(gpu, p, true)) {
      float[] all = output(variant, b);
      for (int r : new int[] {0, 4, 8}) {
        DeviceBuffer row = b.target(F32);
        DeviceBuffer x1 = b.x.slice((long) r * p.in, p.in);
        linear.prepare(variant, b.map, x1, new Output(row, KernelActivation.NONE)).run(1);
        for (int o = 0; o < p.outputs; o++) {
          float[] one = new float[p.outputs];
          row.download(one);
          assertEquals(all[r * p.outputs + o], one[o], "row " + r);
        }
      }
    }
  }

  /** One thread an output adds in the same order as tiles do. */
  @ParameterizedTest
  @EnumSource(
      value = Element.class,
      names = {"F32", "F16", "BF16"})
  void firstThreeVersionsGiveTheSameBits(Element element) {
    LinearProblem p = new LinearProblem(element, element, 20, 77, 70, SEED);
    try (LinearBuffers b = new LinearBuffers(gpu, p, true)) {
      float[] v1 = output(LinearKernels.VARIANTS.get(0), b);
      assertArrayEquals(v1, output(LinearKernels.VARIANTS.get(1), b));
      assertArrayEquals(v1, output(LinearKernels.VARIANTS.get(2), b));
    }
  }

  @ParameterizedTest
  @MethodSource("kernels")
  void activates(Variant variant, Element weight, Element x) {
    LinearProblem p = new LinearProblem(weight, x, 17, 32, 37, SEED);
    try (LinearBuffers b = new LinearBuffers(gpu, p, true)) {
      for (KernelActivation f : KernelActivation.values()) {
        float[] y = run(variant, b, b.target(x), t -> new Output(t, f));
        check(variant, p, true, y, (i, sum) -> sum.activated(f).stored(x));
      }
    }
  }

  @ParameterizedTest
  @MethodSource("kernels")
  void addsToTheResidualStream(Variant variant, Element weight, Element x) {
    for (int outputs : new int[] {37, 68}) {
      LinearProblem p = new LinearProblem(weight, x, 19, 40, outputs, SEED);
      float[] stream = new LinearProblem(F32, F32, 1, 19, outputs, 5).w; // [19, outputs]
      try (LinearBuffers b = new LinearBuffers(gpu, p, true)) {
        DeviceBuffer acc = b.target(F32);
        acc.upload(stream);
        float[] y = run(variant, b, acc, Residual::new);
        check(variant, p, true, y, (i, sum) -> sum.plus(stream[i]));
      }
    }
  }

  public static final CacheShape CACHE = new CacheShape(3, 2, 5, 8);
  // row 2 goes nowhere, nor do rows 5 and 6
  private static final int[] SEQUENCE = {1, 1, -1, 2, 0, 3, 0};
  private static final int[] POSITION = {3, 4, 0, 0, 2, 0, 5};

  /** Sequence of each row of a batch for {@link #CACHE}; -1 of a row that goes nowhere. */
  public static int[] sequence() {
    return SEQUENCE.clone();
  }

  /** Position of each row. */
  public static int[] position() {
    return POSITION.clone();
  }

  @ParameterizedTest
  @MethodSource("kernels")
  void appendsKeysAndValues(Variant variant, Element weight, Element x) {
    int width = CACHE.width();
    LinearProblem p = new LinearProblem(weight, x, SEQUENCE.length, width, 3 * width, SEED);
    for (Element cache : List.of(F32, Element.F16, Element.BF16)) {
      try (LinearBuffers b = new LinearBuffers(gpu, p, true)) {
        DeviceBuffer keys = b.empty(cache, CACHE.elements());
        DeviceBuffer values = b.empty(cache, CACHE.elements());
        DeviceBuffer s = b.with(SEQUENCE);
        DeviceBuffer at = b.with(POSITION);
        float[] qkv =
            run(variant, b, b.target(F32), t -> new QkvAppend(t, keys, values, s, at, CACHE));
        check(variant, p, true, qkv, (i, sum) -> sum);
        assertArrayEquals(cached(qkv, 1, cache), downloaded(keys), "keys");
        assertArrayEquals(cached(qkv, 2, cache), downloaded(values), "values");
        float[] narrow =
            run(variant, b, b.target(x), t -> new QkvAppend(t, keys, values, s, at, CACHE));
        check(variant, p, true, narrow, (i, sum) -> sum.stored(x));
        assertArrayEquals(cached(qkv, 1, cache), downloaded(keys), "keys beside a narrow qkv");
      }
    }
  }

  private static float[] downloaded(DeviceBuffer buffer) {
    float[] values = new float[(int) buffer.elements()];
    buffer.download(values);
    return values;
  }

  /** What a cache of NaN holds after part 1 (K) or 2 (V) of qkv was appended. */
  static float[] cached(float[] qkv, int part, Element element) {
    float[] cache = new float[(int) CACHE.elements()];
    Arrays.fill(cache, Float.NaN);
    int width = CACHE.width();
    for (int r = 0; r < qkv.length / (3 * width); r++) {
      int s = SEQUENCE[r];
      if (s < 0 || s >= CACHE.sequences() || POSITION[r] >= CACHE.capacity()) {
        continue;
      }
      for (int i = 0; i < width; i++) {
        int head = i / CACHE.headSize();
        int cell = (s * CACHE.heads() + head) * CACHE.capacity() + POSITION[r];
        cache[cell * CACHE.headSize() + i % CACHE.headSize()] =
            LinearProblem.rounded(element, qkv[r * 3 * width + part * width + i]);
      }
    }
    return cache;
  }

  /** Large and small numbers in one sum: a split into one tf32 alone would miss by 2^-11. */
  @Test
  void threeTf32ProductsKeepWhatOneLoses() {
    LinearProblem p = new LinearProblem(F32, F32, 3, 64, 5, SEED);
    for (int i = 0; i < p.rows * p.in; i++) {
      p.x[i] = Math.scalb(p.x[i], i % 40 - 20);
    }
    Variant v4 = LinearKernels.VARIANTS.getLast();
    try (LinearBuffers b = new LinearBuffers(gpu, p, false)) {
      check(v4, p, false, output(v4, b), (i, sum) -> sum);
    }
  }

  /** Sums that only grow: what tensor cores cut off would add up over all of k. */
  @Test
  void f32SumsOfTensorCoresAreShort() {
    LinearProblem p = new LinearProblem(F32, F32, 3, 3072, 5, SEED);
    for (float[] values : List.of(p.x, p.w)) {
      for (int i = 0; i < values.length; i++) {
        values[i] = Math.abs(values[i]);
      }
    }
    Variant v4 = LinearKernels.VARIANTS.getLast();
    try (LinearBuffers b = new LinearBuffers(gpu, p, false)) {
      check(v4, p, false, output(v4, b), (i, sum) -> sum);
    }
  }

  @OnDevice(emulated = true)
  @ParameterizedTest
  @MethodSource("kernels")
  void sharedMemoryHasNoBankConflicts(Variant variant, Element weight, Element x) {
    LinearProblem p = new LinearProblem(weight, x, 130, 136, 68, SEED);
    try (LinearBuffers b = new LinearBuffers(gpu, p, true)) {
      Emulated.resetStatistics();
      output(variant, b);
      assertEquals(0, Emulated.bankConflicts());
    }
  }
}
