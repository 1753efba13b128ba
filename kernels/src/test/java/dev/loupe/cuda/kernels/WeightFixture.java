package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.RoundingTo;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.params.Parameter;

/** Matrices on the device with room behind them that no kernel may touch. */
abstract class WeightFixture {
  static final int[][] SHAPES = { // in, outputs
    {1, 1}, {5, 33}, {32, 32}, {33, 65}, {64, 31}, {65, 7}, {150, 40}, {200, 129}
  };

  /** Elements and scales behind the last one, which no kernel may touch. */
  static final int BEYOND = 80;

  static final byte POISON = (byte) 0xff; // a NaN in every float, and -1, which I8 may hold

  static Gpu gpu;
  static WeightKernels kernels;

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
  record Matrix(DeviceBuffer w, DeviceBuffer scales, LinearMap map) implements AutoCloseable {
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

  static int groups(int in) {
    return (in + 63) / 64;
  }

  static float[] transposed(float[] x, int rows, int columns) {
    float[] y = new float[x.length];
    for (int i = 0; i < x.length; i++) {
      y[i % columns * rows + i / columns] = x[i];
    }
    return y;
  }

  /** Uploads rows first .. first + n - 1 of x [.., columns] and hands them over. */
  static void chunk(Element element, float[] x, int columns, int first, int n, ChunkUser user) {
    try (DeviceBuffer chunk = gpu.allocate(element, (long) n * columns)) {
      chunk.upload(Arrays.copyOfRange(x, first * columns, (first + n) * columns));
      user.use(chunk, first, n);
    }
  }

  interface ChunkUser {
    void use(DeviceBuffer chunk, int first, int n);
  }

  /** All rows in chunks of n. */
  static void chunks(Element element, float[] x, int rows, int columns, int n, ChunkUser user) {
    for (int first = 0; first < rows; first += n) {
      chunk(element, x, columns, first, Math.min(n, rows - first), user);
    }
  }

  static float[] poisonedBeyond(float[] x) {
    float[] y = Arrays.copyOf(x, x.length + BEYOND);
    Arrays.fill(y, x.length, y.length, Float.NaN);
    return y;
  }

  /** W [outputs, in] whose groups are of every kind: plain, of ties, tiny, zero, huge. */
  static float[] weights(Element element, int in, int outputs) {
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

  static void assertQuantised(float[] w, Matrix got, String what) {
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
}
