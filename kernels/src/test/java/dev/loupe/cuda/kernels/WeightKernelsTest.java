package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.emulator.RoundingTo;
import dev.loupe.cuda.emulator.Schedules;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.Parameter;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

@OnDevice
@ParameterizedClass
@EnumSource(Serving.class)
class WeightKernelsTest {
  private static final Element[] ELEMENTS = {Element.F32, Element.F16, Element.BF16};
  private static final int[][] SHAPES = { // in, outputs
    {1, 1}, {5, 33}, {32, 32}, {33, 65}, {64, 31}, {65, 7}, {150, 40}, {200, 129}
  };

  /** Elements and scales behind the last one, which no kernel may touch. */
  private static final int BEYOND = 80;

  private static final byte POISON = (byte) 0xff; // a NaN in every float, and -1, which I8 may hold

  private static Gpu gpu;
  private static WeightKernels kernels;

  @BeforeAll
  static void open() {
    gpu = Emulator.open();
    kernels = new WeightKernels(gpu);
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

  /** A matrix on the device, poisoned, with room behind it. */
  private record Matrix(DeviceBuffer w, DeviceBuffer scales, LinearMap map)
      implements AutoCloseable {
    static Matrix of(Element element, int in, int outputs) {
      DeviceBuffer w = gpu.allocate(element, (long) in * outputs + BEYOND);
      DeviceBuffer scales = gpu.allocate(Element.F32, (long) groups(in) * outputs + BEYOND);
      w.fill(POISON);
      scales.fill(POISON);
      return new Matrix(
          w, scales, new LinearMap(w, element == Element.I8 ? scales : null, null, in, outputs));
    }

    float[] floats() {
      float[] x = new float[(int) w.elements()];
      w.download(x);
      return x;
    }

    byte[] bytes() {
      byte[] x = new byte[(int) w.elements()];
      w.download(MemorySegment.ofArray(x));
      return x;
    }

    float[] scaleValues() {
      float[] x = new float[(int) scales.elements()];
      scales.download(x);
      return x;
    }

    @Override
    public void close() {
      w.close();
      scales.close();
    }
  }

  private static int groups(int in) {
    return (in + 63) / 64;
  }

  private static float[] transposed(float[] x, int rows, int columns) {
    float[] y = new float[x.length];
    for (int i = 0; i < x.length; i++) {
      y[i % columns * rows + i / columns] = x[i];
    }
    return y;
  }

  /** Uploads rows first .. first + n - 1 of x [.., columns] and hands them over. */
  private static void chunk(
      Element element, float[] x, int columns, int first, int n, ChunkUser user) {
    try (DeviceBuffer chunk = gpu.allocate(element, (long) n * columns)) {
      chunk.upload(Arrays.copyOfRange(x, first * columns, (first + n) * columns));
      user.use(chunk, first, n);
    }
  }

  private interface ChunkUser {
    void use(DeviceBuffer chunk, int first, int n);
  }

  /** All rows in chunks of n. */
  private static void chunks(
      Element element, float[] x, int rows, int columns, int n, ChunkUser user) {
    for (int first = 0; first < rows; first += n) {
      chunk(element, x, columns, first, Math.min(n, rows - first), user);
    }
  }

  // ---- repack

  /** Numbers of all sizes, and some at which rounding is easy to get wrong. */
  private static float[] awkward(int n, long seed) {
    float[] special = {
      0x1.002p0f,
      0x1.006p0f,
      0x1.01p0f,
      0x1.03p0f,
      65519f,
      65520f,
      0x1p-25f,
      0x1.8p-25f,
      -0f,
      Float.NEGATIVE_INFINITY,
      Float.MIN_VALUE,
      Float.MAX_VALUE,
      0x1.8p-133f
    };
    Random random = new Random(seed);
    float[] x = new float[n];
    for (int i = 0; i < n; i++) {
      float any = Float.intBitsToFloat(random.nextInt());
      x[i] =
          i % 3 == 0
              ? special[i / 3 % special.length]
              : Float.isNaN(any) ? 1 : any; // of which an unwritten place could not be told
    }
    return x;
  }

  @ParameterizedTest
  @EnumSource(names = {"F32", "F16", "BF16"})
  void repackingTransposesAndRoundsToNearestEven(Element from) {
    for (Element to : ELEMENTS) {
      for (int[] shape : SHAPES) {
        int in = shape[0];
        int outputs = shape[1];
        float[] x = RoundingTo.nearest(from, awkward(in * outputs, in));
        float[] expected = RoundingTo.nearest(to, transposed(x, in, outputs));
        for (int n : new int[] {in, 1 + in / 3}) {
          try (Matrix w = Matrix.of(to, in, outputs)) {
            chunks(
                from, x, in, outputs, n, (c, first, rows) -> kernels.repack(c, first, rows, w.map));
            assertArrayEquals(
                poisonedBeyond(expected),
                w.floats(),
                "%s to %s, [%d, %d] by %d".formatted(from, to, in, outputs, n));
          }
        }
      }
    }
  }

  @Test
  void repackingLeavesOtherColumnsAlone() {
    int in = 100;
    int outputs = 37;
    float[] x = RoundingTo.nearest(Element.F16, awkward(in * outputs, 5));
    float[] expected = transposed(x, in, outputs);
    for (int i = 0; i < expected.length; i++) {
      if (i % in < 41 || i % in >= 41 + 35) {
        expected[i] = Float.NaN;
      }
    }
    try (Matrix w = Matrix.of(Element.F16, in, outputs)) {
      chunk(Element.F16, x, outputs, 41, 35, (c, first, n) -> kernels.repack(c, first, n, w.map));
      assertArrayEquals(poisonedBeyond(expected), w.floats());
    }
  }

  private static float[] poisonedBeyond(float[] x) {
    float[] y = Arrays.copyOf(x, x.length + BEYOND);
    Arrays.fill(y, x.length, y.length, Float.NaN);
    return y;
  }

  // ---- quantise

  /** W [outputs, in] whose groups are of every kind: plain, of ties, tiny, zero, huge. */
  private static float[] weights(Element element, int in, int outputs) {
    Random random = new Random(in);
    float[] w = new float[in * outputs];
    for (int i = 0; i < w.length; i++) {
      int o = i / in;
      int k = i % in;
      float x =
          switch ((o + k / 64) % 5) {
            case 0 -> (float) random.nextGaussian() * 0.02f;
            case 1 -> k % 64 == 3 ? -127 : random.nextInt(-126, 127) + 0.5f; // the scale is 1
            case 2 -> random.nextInt(-300, 300) * RoundingTo.nearest(element, 0x1p-24f) * 0x1p-125f;
            case 3 -> k % 2 == 0 ? 0f : -0f;
            default -> random.nextFloat(-1, 1) * (element == Element.F16 ? 65504 : 0x1.fep127f);
          };
      w[i] = RoundingTo.nearest(element, x);
    }
    return w;
  }

  @ParameterizedTest
  @EnumSource(names = {"F32", "F16", "BF16"})
  void quantisingIsWhatTheHostDoes(Element element) {
    for (int[] shape : SHAPES) {
      int in = shape[0];
      int outputs = shape[1];
      float[] w = weights(element, in, outputs);
      float[] x = transposed(w, outputs, in); // [in, outputs], the checkpoint's
      for (int n : new int[] {64, 128}) {
        String what = "%s [%d, %d] by %d".formatted(element, in, outputs, n);
        try (Matrix q = Matrix.of(Element.I8, in, outputs)) {
          chunks(element, x, in, outputs, n, (c, f, rows) -> kernels.quantise(c, f, rows, q.map));
          assertQuantised(w, q, what);
        }
      }
      try (Matrix q = Matrix.of(Element.I8, in, outputs)) {
        chunks(
            element,
            w,
            outputs,
            in,
            1 + outputs / 3,
            (c, f, n) -> kernels.quantiseTable(c, f, n, q.map));
        assertQuantised(w, q, "table, %s [%d, %d]".formatted(element, in, outputs));
      }
    }
  }

  private static void assertQuantised(float[] w, Matrix got, String what) {
    int in = got.map.in();
    int outputs = got.map.outputs();
    Int8Weights host = Int8Weights.quantise(w, in, outputs);
    byte[] values = new byte[w.length + BEYOND];
    Arrays.fill(values, POISON);
    float[] scales = new float[groups(in) * outputs + BEYOND];
    Arrays.fill(scales, Float.NaN);
    for (int i = 0; i < w.length; i++) {
      values[i] = host.value(i / in, i % in);
      scales[i / in * groups(in) + i % in / 64] = host.scale(i / in, i % in);
    }
    assertArrayEquals(scales, got.scaleValues(), what + ": scales");
    assertArrayEquals(values, got.bytes(), what);
  }

  @Test
  void quantisingLeavesOtherGroupsAlone() {
    int in = 200;
    int outputs = 5;
    try (Matrix q = Matrix.of(Element.I8, in, outputs);
        DeviceBuffer zero = gpu.allocate(Element.F32, 64L * outputs)) {
      zero.fill((byte) 0);
      kernels.quantise(zero, 64, 64, q.map);
      byte[] values = q.bytes();
      float[] scales = q.scaleValues();
      for (int i = 0; i < values.length; i++) {
        boolean written = i < in * outputs && i % in >= 64 && i % in < 128;
        assertEquals(written ? 0 : POISON, values[i], "value " + i);
      }
      for (int i = 0; i < scales.length; i++) {
        assertEquals(i < 4 * outputs && i % 4 == 1 ? 0 : Float.NaN, scales[i], "scale " + i);
      }
    }
  }

  @Test
  void aWeightThatIsNotFiniteMakesItsScaleNaNAndNoOther() {
    int in = 128;
    int outputs = 3;
    for (float bad : new float[] {Float.NaN, Float.POSITIVE_INFINITY, Float.NEGATIVE_INFINITY}) {
      for (int k : new int[] {64, 95, 96, 127}) { // of either weight of a lane
        float[] w = new float[in * outputs];
        Arrays.fill(w, 2);
        w[in + k] = bad;
        try (Matrix q = Matrix.of(Element.I8, in, outputs);
            Matrix table = Matrix.of(Element.I8, in, outputs)) {
          float[] x = transposed(w, outputs, in);
          chunk(Element.F32, x, outputs, 0, in, (c, f, n) -> kernels.quantise(c, f, n, q.map));
          chunk(
              Element.F32,
              w,
              in,
              0,
              outputs,
              (c, f, n) -> kernels.quantiseTable(c, f, n, table.map));
          for (Matrix m : new Matrix[] {q, table}) {
            float[] scales = m.scaleValues();
            byte[] values = m.bytes();
            for (int g = 0; g < 6; g++) {
              assertEquals(g == 3 ? Float.NaN : 2f / 127, scales[g], "scale of group " + g);
              assertEquals(g == 3 ? 0 : 127, values[64 * g + 1], "in group " + g);
            }
          }
        }
      }
    }
  }

  // ---- dequantise

  @ParameterizedTest
  @EnumSource(names = {"F32", "F16", "BF16"})
  void dequantisingIsScaleTimesValue(Element element) {
    for (int in : new int[] {1, 7, 8, 36, 64, 65, 150, 200, 768}) {
      for (int outputs : new int[] {1, 3, 8}) {
        Random random = new Random(in);
        byte[] q = new byte[in * outputs];
        random.nextBytes(q);
        float[] scales = new float[groups(in) * outputs + BEYOND]; // a NaN there would not show
        float[] expected = new float[q.length + BEYOND];
        Arrays.fill(expected, Float.NaN);
        for (int i = 0; i < scales.length; i++) {
          scales[i] = random.nextFloat() * (i % 7 == 0 ? 0x1p-20f : 1); // subnormal in f16, too
        }
        for (int i = 0; i < q.length; i++) {
          expected[i] =
              RoundingTo.nearest(element, scales[i / in * groups(in) + i % in / 64] * q[i]);
        }
        try (Matrix from = Matrix.of(Element.I8, in, outputs);
            DeviceBuffer out = gpu.allocate(element, expected.length)) {
          from.w.upload(MemorySegment.ofArray(q));
          from.scales.upload(scales);
          out.fill(POISON);
          kernels.dequantise(from.map, out);
          float[] got = new float[expected.length];
          out.download(got);
          assertArrayEquals(expected, got, "%s [%d, %d]".formatted(element, outputs, in));
        }
      }
    }
  }

  // ---- all of them

  @Test
  void everyScheduleGivesTheSameBits() {
    int in = 200;
    int outputs = 70;
    float[] w = weights(Element.F16, in, outputs);
    float[] x = transposed(w, outputs, in);
    try {
      for (Runnable schedule : Schedules.others()) {
        schedule.run();
        try (Matrix q = Matrix.of(Element.I8, in, outputs);
            Matrix half = Matrix.of(Element.F16, in, outputs)) {
          chunk(Element.F16, x, outputs, 0, in, (c, f, n) -> kernels.quantise(c, f, n, q.map));
          assertQuantised(w, q, "quantised");
          chunk(Element.F16, x, outputs, 0, in, (c, f, n) -> kernels.repack(c, f, n, half.map));
          assertArrayEquals(poisonedBeyond(w), half.floats());
        }
      }
    } finally {
      Emulator.forward();
    }
  }

  @Test
  void refusesWhatDoesNotFit() {
    DeviceBuffer closed = gpu.allocate(Element.F32, 2000);
    closed.close();
    try (Matrix f32 = Matrix.of(Element.F32, 150, 10);
        Matrix i8 = Matrix.of(Element.I8, 150, 10);
        DeviceBuffer chunk = gpu.allocate(Element.F16, 1000);
        DeviceBuffer ids = gpu.allocate(Element.I32, 2000)) {
      assertRefused(
          "repack: chunk has 1000 elements, needs 1010",
          () -> kernels.repack(chunk, 0, 101, f32.map));
      assertRefused(
          "repack: first is 150, not between 0 and 149",
          () -> kernels.repack(chunk, 150, 1, f32.map));
      assertRefused(
          "repack: first is -1, not between 0 and 149",
          () -> kernels.repack(chunk, -1, 1, f32.map));
      assertRefused(
          "repack: n is 51, not between 1 and 50", () -> kernels.repack(chunk, 100, 51, f32.map));
      assertRefused(
          "repack: n is 0, not between 1 and 150", () -> kernels.repack(chunk, 0, 0, f32.map));
      assertRefused(
          "repack: W holds I8, not F32, F16 or BF16", () -> kernels.repack(chunk, 0, 1, i8.map));
      assertRefused(
          "repack: chunk holds I32, not F32, F16 or BF16",
          () -> kernels.repack(ids, 0, 1, f32.map));
      assertRefused("repack: chunk is closed", () -> kernels.repack(closed, 0, 1, f32.map));
      assertRefused(
          "repack: W and chunk are one buffer", () -> kernels.repack(f32.w, 0, 1, f32.map));

      assertRefused("quantise: W holds F32, not I8", () -> kernels.quantise(chunk, 0, 64, f32.map));
      assertRefused(
          "quantise: rows 1 to 65 of 150 cut a group of 64",
          () -> kernels.quantise(chunk, 1, 64, i8.map));
      assertRefused(
          "quantise: rows 0 to 65 of 150 cut a group of 64",
          () -> kernels.quantise(chunk, 0, 65, i8.map));
      assertRefused(
          "quantise: chunk has 1000 elements, needs 1280",
          () -> kernels.quantise(chunk, 0, 128, i8.map));
      assertRefused(
          "quantise: n is 2, not between 1 and 1",
          () -> kernels.quantiseTable(chunk, 9, 2, i8.map));
      assertRefused(
          "quantise: chunk has 1000 elements, needs 1050",
          () -> kernels.quantiseTable(chunk, 0, 7, i8.map));

      assertRefused(
          "dequantise: out has 1000 elements, needs 1500", () -> kernels.dequantise(i8.map, chunk));
      assertRefused(
          "dequantise: out holds I32, not F32, F16 or BF16", () -> kernels.dequantise(i8.map, ids));
      assertRefused("dequantise: out is closed", () -> kernels.dequantise(i8.map, closed));
      assertRefused("dequantise: W holds F32, not I8", () -> kernels.dequantise(f32.map, chunk));
      assertRefused(
          "repack: in is 1048577, not between 1 and 1048576",
          () -> {
            try (Matrix wide = Matrix.of(Element.F16, (1 << 20) + 1, 1)) {
              kernels.repack(chunk, 0, 1, wide.map);
            }
          });
      i8.scales.close();
      assertRefused("quantise: scales is closed", () -> kernels.quantise(chunk, 0, 64, i8.map));
    }
  }

  private static void assertRefused(String message, Runnable call) {
    assertEquals(message, assertThrows(IllegalArgumentException.class, call::run).getMessage());
  }
}
