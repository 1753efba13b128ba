package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.emulator.Refusal;
import dev.loupe.cuda.emulator.Schedules;
import java.util.Arrays;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.Parameter;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

@OnDevice
@ParameterizedClass
@EnumSource(Serving.class)
@Tag("gpu")
class DecodeAttentionTest {
  /** Lengths around a warp's 32 keys and a split's 128, and a free slot. */
  private static final int[] KEYS = {1, 7, 31, 33, 65, 0, 128, 129, 200, 513};

  private static final int[] SEQUENCE = {2, 0, 1, 2, 0, 0, 1, 2, 1, 0};
  private static final int[] FILLED = {513, 200, 129};
  private static final int CAPACITY = 520;

  private static Gpu gpu;

  @BeforeAll
  static void open() {
    gpu = Emulator.open();
  }

  @AfterAll
  static void close() {
    gpu.close();
  }

  @Parameter Serving serving = Serving.BEST;

  @BeforeEach
  void choose() {
    gpu.use(serving);
  }

  /** What came back. */
  private static final class Result {
    final float[] y;
    final float[] lse;

    Result(int rows, CacheShape shape) {
      y = new float[rows * shape.width()];
      lse = new float[rows * shape.heads()];
    }
  }

  private static CachedAttention problem(Element activations, Element cache, int d, float spread) {
    CacheShape shape = new CacheShape(3, 2, CAPACITY, d);
    long seed = 100L + d;
    return new CachedAttention(shape, activations, cache, KEYS.length, FILLED, spread, seed);
  }

  /** Runs the rows from {@code from} to {@code to} as one launch. */
  private static Result run(
      CachedAttention a, int[] sequence, int[] keys, int from, int to, int maxKeys) {
    int n = to - from;
    int width = a.shape.width();
    try (DeviceBuffer qkv = gpu.allocate(a.activations, 3L * n * width);
        DeviceBuffer k = gpu.allocate(a.cache, a.shape.elements());
        DeviceBuffer v = gpu.allocate(a.cache, a.shape.elements());
        DeviceBuffer s = gpu.allocate(Element.I32, n);
        DeviceBuffer l = gpu.allocate(Element.I32, n);
        DeviceBuffer y = gpu.allocate(a.activations, (long) n * width);
        DeviceBuffer lse = gpu.allocate(Element.F32, (long) n * a.shape.heads());
        DecodeAttention decode = new DecodeAttention(gpu, a.shape, a.activations, a.cache, n)) {
      qkv.upload(Arrays.copyOfRange(a.qkv, from * 3 * width, to * 3 * width));
      k.upload(a.k);
      v.upload(a.v);
      s.upload(Arrays.copyOfRange(sequence, from, to));
      l.upload(Arrays.copyOfRange(keys, from, to));
      y.fill((byte) 0xff);
      lse.fill((byte) 0xff);
      decode.run(
          new DecodeAttention.Rows(qkv, s, l, n, maxKeys),
          new DecodeAttention.Cache(k, v),
          a.scale,
          y,
          lse);
      Result result = new Result(n, a.shape);
      y.download(result.y);
      lse.download(result.lse);
      return result;
    }
  }

  private static void compare(CachedAttention a, Result result) {
    double worst = 0;
    int d = a.shape.headSize();
    for (int row = 0; row < KEYS.length; row++) {
      for (int head = 0; head < a.shape.heads(); head++) {
        String where = "D %d, row %d, head %d: ".formatted(d, row, head);
        CachedAttention.Row want = a.row(row, head, SEQUENCE[row], KEYS[row]);
        int at = row * a.shape.heads() + head;
        if (KEYS[row] == 0) {
          assertEquals(Float.NEGATIVE_INFINITY, result.lse[at], where);
        } else {
          worst = check(worst, where + "lse", want.lse, result.lse[at], want.lseError());
        }
        for (int i = 0; i < d; i++) {
          float y = result.y[at * d + i];
          worst = check(worst, where + "y " + i, want.y(i), y, want.yError(i));
        }
      }
    }
    System.out.printf(
        "decode %s/%s D %d: worst error %.2f of its bound%n",
        a.activations.suffix(), a.cache.suffix(), d, worst);
  }

  private static double check(double worst, String what, double want, double got, double bound) {
    double error = Math.abs(got - want);
    assertTrue(error <= bound, what + ": " + got + " for " + want + ", bound " + bound);
    return Math.max(worst, error / bound);
  }

  @ParameterizedTest
  @CsvSource({
    "F32, F32, 8",
    "F32, F32, 64",
    "F32, F32, 80",
    "F32, F32, 128",
    "F32, F16, 8",
    "F32, F16, 64",
    "F32, F16, 80",
    "F32, F16, 128",
    "F32, BF16, 24",
    "F32, BF16, 64",
    "F32, BF16, 120",
    "F16, F16, 64",
    "F16, F32, 40",
    "BF16, BF16, 64",
    "BF16, BF16, 72"
  })
  void equalsTheReference(Element activations, Element cache, int d) {
    Schedules.forward();
    CachedAttention a = problem(activations, cache, d, 1);
    compare(a, run(a, SEQUENCE, KEYS, 0, KEYS.length, CAPACITY));
  }

  @ParameterizedTest
  @CsvSource({"F32", "F16", "BF16"})
  void standsLargeScores(Element cache) {
    Schedules.forward();
    CachedAttention a = problem(Element.F32, cache, 64, 30); // scores to beyond +-80
    compare(a, run(a, SEQUENCE, KEYS, 0, KEYS.length, CAPACITY));
  }

  @ParameterizedTest
  @CsvSource({"F32, 128", "F16, 64", "BF16, 80"})
  void bitsDependOnTheRowAlone(Element cache, int d) {
    CachedAttention a = problem(Element.F32, cache, d, 1);
    Schedules.forward();
    Result all = run(a, SEQUENCE, KEYS, 0, KEYS.length, CAPACITY);
    for (Runnable schedule : Schedules.others()) {
      schedule.run();
      Result again = run(a, SEQUENCE, KEYS, 0, KEYS.length, CAPACITY);
      assertArrayEquals(all.y, again.y);
      assertArrayEquals(all.lse, again.lse);
    }
    Schedules.forward();
    int width = a.shape.width();
    for (int row = 0; row < KEYS.length; row++) {
      Result one = run(a, SEQUENCE, KEYS, row, row + 1, Math.max(1, KEYS[row]));
      assertArrayEquals(Arrays.copyOfRange(all.y, row * width, (row + 1) * width), one.y);
      int heads = a.shape.heads();
      assertArrayEquals(Arrays.copyOfRange(all.lse, row * heads, (row + 1) * heads), one.lse);
    }
  }

  @Test
  void rowsOutsideTheCacheAreNaNAndHarmNoOther() {
    Schedules.forward();
    CachedAttention a = problem(Element.F32, Element.F16, 64, 1);
    int maxKeys = 256;
    int[] sequence = {0, 3, -1, Integer.MIN_VALUE, 0, 0, 0, 0, 0, 1};
    int[] keys = {200, 5, 5, 5, -1, CAPACITY + 1, Integer.MAX_VALUE, 257, Integer.MIN_VALUE, 129};
    Result result = run(a, sequence, keys, 0, keys.length, maxKeys);
    int width = a.shape.width();
    for (int row = 0; row < keys.length; row++) {
      boolean bad = row > 0 && row < 9;
      for (int i = 0; i < width; i++) {
        assertEquals(bad, Float.isNaN(result.y[row * width + i]), "row " + row);
      }
      for (int h = 0; h < 2; h++) {
        assertEquals(bad, Float.isNaN(result.lse[row * 2 + h]), "row " + row);
      }
    }
  }

  @Test
  void refusesWhatItCannotDo() {
    CacheShape shape = new CacheShape(1, 2, 16, 8);
    assertShape("12 wide", () -> new CacheShape(1, 2, 16, 12));
    assertShape("136 wide", () -> new CacheShape(1, 2, 16, 136));
    assertShape("0 sequences", () -> new CacheShape(0, 2, 16, 8));
    assertMessage("i8", () -> new DecodeAttention(gpu, shape, Element.F32, Element.I8, 1));
    assertMessage("0, not in", () -> new DecodeAttention(gpu, shape, Element.F32, Element.F32, 0));
    try (DecodeAttention decode = new DecodeAttention(gpu, shape, Element.F32, Element.F16, 2);
        DeviceBuffer floats = gpu.allocate(Element.F32, 96);
        DeviceBuffer halves = gpu.allocate(Element.F16, 256);
        DeviceBuffer ints = gpu.allocate(Element.I32, 2)) {
      DecodeAttention.Cache kv = new DecodeAttention.Cache(halves, halves);
      DecodeAttention.Rows two = new DecodeAttention.Rows(floats, ints, ints, 2, 16);
      assertMessage("scale 0.0", () -> decode.run(two, kv, 0, floats, floats));
      assertMessage("scale NaN", () -> decode.run(two, kv, Float.NaN, floats, floats));
      assertMessage("y holds F16, not F32", () -> decode.run(two, kv, 1, halves, floats));
      assertMessage(
          "K of the cache holds F32, not F16",
          () -> decode.run(two, new DecodeAttention.Cache(floats, halves), 1, floats, floats));
      assertMessage(
          "3, not in 0 .. 2", () -> decode.run(row(floats, ints, 3, 16), kv, 1, floats, floats));
      assertMessage(
          "17, not in 1 .. 16", () -> decode.run(row(floats, ints, 2, 17), kv, 1, floats, floats));
      try (DeviceBuffer few = gpu.allocate(Element.F32, 3)) {
        assertMessage("lse has 3 elements, needs 4", () -> decode.run(two, kv, 1, floats, few));
      }
      DeviceBuffer odd = floats.slice(1, 32);
      assertMessage("no multiple of 16", () -> decode.run(two, kv, 1, odd, floats));
      DeviceBuffer gone = gpu.allocate(Element.F32, 96);
      gone.close();
      assertMessage("closed", () -> decode.run(two, kv, 1, gone, floats));
    }
  }

  private static DecodeAttention.Rows row(DeviceBuffer qkv, DeviceBuffer ints, int n, int max) {
    return new DecodeAttention.Rows(qkv, ints, ints, n, max);
  }

  private static void assertShape(String part, Executable what) {
    Exception refused = assertThrows(IllegalArgumentException.class, what);
    assertTrue(("" + refused.getMessage()).contains(part), refused.toString());
  }

  private static void assertMessage(String part, Runnable what) {
    String message = Refusal.ofArguments(what);
    assertTrue(message.contains(part), message);
  }
}
