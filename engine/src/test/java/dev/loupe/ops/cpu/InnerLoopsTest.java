package dev.loupe.ops.cpu;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.ops.Precision;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The twins give the same bits, on vectors of every width, and those bits are right. */
class InnerLoopsTest {
  private static final int[] SIZES = {1, 2, 3, 4, 7, 8, 15, 16, 17, 25, 31, 32, 33, 64, 65, 200};

  private final InnerLoops scalar = new ScalarLoops();
  private final Random random = new Random(20_26);

  static List<InnerLoops> vectors() {
    List<InnerLoops> all = new ArrayList<>();
    for (int bits : new int[] {128, 256, 512}) {
      InnerLoops loops = VectorLoops.ofWidth(bits);
      assertEquals(bits + "-bit vectors", loops.toString());
      assertEquals(loops.toString(), loops.another().toString());
      all.add(loops);
    }
    return all;
  }

  private float[] floats(int n) {
    float[] x = new float[n];
    for (int i = 0; i < n; i++) {
      x[i] = (float) random.nextGaussian();
    }
    return x;
  }

  /** Native memory, at an odd address as in a mapped file, with NaN around the numbers. */
  private static MemorySegment segment(Arena arena, float[] x) {
    MemorySegment padded = arena.allocate(4L * x.length + 65, 64);
    padded.fill((byte) 0xff);
    MemorySegment inside = padded.asSlice(1, 4L * x.length);
    MemorySegment.copy(x, 0, inside, ScalarLoops.F32, 0, x.length);
    return inside;
  }

  private static float[] array(MemorySegment segment) {
    float[] x = new float[(int) (segment.byteSize() / 4)];
    MemorySegment.copy(segment, ScalarLoops.F32, 0, x, 0, x.length);
    return x;
  }

  @ParameterizedTest
  @MethodSource("vectors")
  void sumsAndNorms(InnerLoops vector) {
    try (Arena arena = Arena.ofConfined()) {
      for (int n : SIZES) {
        MemorySegment x = segment(arena, floats(n));
        MemorySegment w = segment(arena, floats(n));
        MemorySegment b = segment(arena, floats(n));
        assertEquals(scalar.sum(x, 0, n), vector.sum(x, 0, n));
        assertEquals(scalar.sumOfSquares(x, 0, n, 0.3f), vector.sumOfSquares(x, 0, n, 0.3f));
        MemorySegment one = segment(arena, new float[n]);
        MemorySegment two = segment(arena, new float[n]);
        scalar.normalise(x, 0, n, 0.1f, 1.7f, w, b, one, 0);
        vector.normalise(x, 0, n, 0.1f, 1.7f, w, b, two, 0);
        assertArrayEquals(array(one), array(two));
      }
    }
  }

  /** A weight [in, out] as a checkpoint has it. */
  private StoredTensor stored(Arena arena, DType dtype, int in, int out) {
    float[] values = floats(in * out);
    MemorySegment data = arena.allocate((long) dtype.bytes() * values.length + 1, 64).asSlice(1);
    dtype.encode(values, 0, values.length, data, 0);
    return new StoredTensor("w", dtype, List.of((long) in, (long) out), data);
  }

  /** What element [k, o] of the weight is once it is packed, by the definition of each type. */
  private static float[] values(StoredTensor w, Precision type) {
    int in = Math.toIntExact(w.shape().get(0));
    int out = Math.toIntExact(w.shape().get(1));
    float[] values = new float[in * out];
    w.read(0, values, 0, values.length);
    for (int o = 0; o < out; o++) {
      for (int k = 0; k < in; k++) {
        int at = k * out + o;
        values[at] =
            switch (type) {
              case F32 -> values[at];
              case F16 -> Float.float16ToFloat(Float.floatToFloat16(values[at]));
              case BF16 -> bf16(values[at]);
              case INT8 -> (float) Math.rint(values[at] / scale(w, k, o));
            };
      }
    }
    return values;
  }

  private static float bf16(float value) {
    byte[] two = new byte[2];
    DType.BF16.encode(new float[] {value}, 0, 1, MemorySegment.ofArray(two), 0);
    float[] back = new float[1];
    DType.BF16.decode(MemorySegment.ofArray(two), 0, back, 0, 1);
    return back[0];
  }

  private static float scale(StoredTensor w, int k, int o) {
    int in = Math.toIntExact(w.shape().get(0));
    int out = Math.toIntExact(w.shape().get(1));
    float largest = 0;
    float[] one = new float[1];
    for (int i = k / 64 * 64; i < Math.min(in, k / 64 * 64 + 64); i++) {
      w.read((long) i * out + o, one, 0, 1);
      largest = Math.max(largest, Math.abs(one[0]));
    }
    return largest / 127;
  }

  /** The product by one row, each sum from its first input to its last. */
  private static float[] product(float[] x, StoredTensor w, Precision type, float[] start) {
    int in = x.length;
    int out = start.length;
    float[] values = values(w, type);
    float[] sums = start.clone();
    for (int o = 0; o < out; o++) {
      for (int first = 0; first < in; first += 64) {
        float part = type == Precision.INT8 ? 0 : sums[o];
        int end = Math.min(in, first + 64);
        for (int k = first; k < end; k++) {
          part = Math.fma(x[k], values[k * out + o], part);
        }
        sums[o] = type == Precision.INT8 ? Math.fma(part, scale(w, first, o), sums[o]) : part;
      }
    }
    return sums;
  }

  private List<InnerLoops> all(InnerLoops vector) {
    return List.of(scalar, vector);
  }

  @ParameterizedTest
  @MethodSource("vectors")
  void productsByOneRow(InnerLoops vector) {
    try (Arena arena = Arena.ofShared();
        WorkerPool pool = new WorkerPool(2)) {
      for (Precision type : Precision.values()) {
        for (int in : new int[] {1, 63, 64, 65, 200}) {
          for (int out : new int[] {1, 17, 64, 130}) {
            StoredTensor w = stored(arena, DType.F32, in, out);
            float[] x = floats(in);
            if (out == 130) {
              x[in / 2] *= 1e6f; // too large for tricks with exponents
            }
            float[] start = floats(out);
            float[] expected = product(x, w, type, start);
            for (InnerLoops loops : all(vector)) {
              Panels panels = Panels.ofColumns(w, type, loops.tileColumns(), arena, pool);
              assertEquals(type, panels.type());
              assertArrayEquals(expected, multiplied(loops, segment(arena, x), panels, start));
            }
          }
        }
      }
    }
  }

  private static float[] multiplied(InnerLoops loops, MemorySegment x, Panels w, float[] start) {
    int columns = w.columns();
    float[] result = start.clone();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment sums = segment(arena, new float[(1 + InnerLoops.STREAMS) * columns]);
      long at = 4L * columns;
      int turn = Panels.GROUP * (w.in() > 2 * Panels.GROUP ? 2 : 1);
      for (int p = 0; p < w.count(); p += InnerLoops.STREAMS) {
        int panels = Math.min(InnerLoops.STREAMS, w.count() - p);
        int n = Math.min(panels * columns, w.out() - p * columns);
        MemorySegment.copy(start, p * columns, sums, ScalarLoops.F32, at, n);
        for (int k = 0; k < w.in(); k += turn) {
          loops.multiplyOne(x, 4L * k, w, p, panels, k, Math.min(turn, w.in() - k), sums, at);
        }
        MemorySegment.copy(sums, ScalarLoops.F32, at, result, p * columns, n);
      }
    }
    return result;
  }

  /** A table's rows are outputs; the panels are those of its transpose. */
  @Test
  void tablesArePackedByRows() {
    try (Arena arena = Arena.ofShared();
        WorkerPool pool = new WorkerPool(2)) {
      int in = 70;
      int out = 40;
      StoredTensor w = stored(arena, DType.F16, in, out);
      float[] values = values(w, Precision.F32);
      MemorySegment rows = arena.allocate(2L * in * out);
      for (int o = 0; o < out; o++) {
        for (int k = 0; k < in; k++) {
          rows.setAtIndex(
              ValueLayout.JAVA_SHORT, o * in + k, Float.floatToFloat16(values[k * out + o]));
        }
      }
      StoredTensor table = new StoredTensor("t", DType.F16, List.of((long) out, (long) in), rows);
      for (Precision type : Precision.values()) {
        Panels one = Panels.ofColumns(w, type, 16, arena, pool);
        Panels two = Panels.ofRows(table, type, 16, arena, pool);
        assertEquals(-1, one.data().mismatch(two.data()), type.toString());
        assertEquals(-1, one.scales().mismatch(two.scales()), type.toString());
      }
    }
  }

  /** Infinity, NaN and what would round to infinity: such a weight stays f32. */
  @ParameterizedTest
  @ValueSource(floats = {Float.NaN, Float.NEGATIVE_INFINITY, 65520, 1e30f})
  void whatHalvesCannotHoldIsNotMadeHalves(float odd) {
    try (Arena arena = Arena.ofShared();
        WorkerPool pool = new WorkerPool(2)) {
      StoredTensor w = stored(arena, DType.F32, 3, 100);
      w.data(arena).set(ScalarLoops.F32, 4 * 150, odd);
      assertEquals(Precision.F32, Panels.ofColumns(w, Precision.F16, 16, arena, pool).type());
      assertEquals(Precision.BF16, Panels.ofColumns(w, Precision.BF16, 16, arena, pool).type());
      assertEquals(
          Float.isFinite(odd) ? Precision.INT8 : Precision.F32,
          Panels.ofColumns(w, Precision.INT8, 16, arena, pool).type());
    }
  }

  /** Tiles differ in size between the twins, so each is held to the sum's definition. */
  @ParameterizedTest
  @MethodSource("vectors")
  void tiles(InnerLoops vector) {
    try (Arena arena = Arena.ofConfined()) {
      for (InnerLoops loops : all(vector)) {
        for (int inner : SIZES) {
          for (int rows = 1; rows <= loops.tileRows(); rows++) {
            tile(arena, loops, inner, rows);
          }
        }
      }
    }
  }

  private void tile(Arena arena, InnerLoops loops, int inner, int rows) {
    int columns = loops.tileColumns();
    int half = columns / 2;
    int stride = columns + 3; // of w and of the tile, in elements
    float[] x = floats(rows * inner);
    float[] w = floats(2 * inner * stride); // the right half lies behind all of the left one
    float[] start = floats(columns);
    float[] tile = new float[rows * stride + 1];
    float[] expected = tile.clone();
    for (int m = 0; m < rows; m++) {
      for (int j = 0; j < columns; j++) {
        float sum = start[j];
        for (int k = 0; k < inner; k++) {
          int at = j < half ? k * stride + j + 1 : (inner + k) * stride + j - half;
          sum = Math.fma(x[m * inner + k], w[at], sum);
        }
        expected[m * stride + j + 1] = sum;
      }
    }
    MemorySegment to = segment(arena, tile);
    loops.multiplyTile(
        segment(arena, x),
        0,
        4L * inner,
        rows,
        inner,
        segment(arena, w),
        4,
        4L * inner * stride,
        4L * stride,
        segment(arena, start),
        to,
        4,
        4L * stride);
    assertArrayEquals(expected, array(to));
  }

  @ParameterizedTest
  @MethodSource("vectors")
  void softmax(InnerLoops vector) {
    try (Arena arena = Arena.ofConfined()) {
      float[] scores = floats(InnerLoops.KEYS);
      float[] sums = floats(InnerLoops.LANES);
      for (int n : new int[] {0, 1, 2, 15, 16, 17, 33, 63, 64}) {
        for (float before : new float[] {Float.NEGATIVE_INFINITY, 0, 10}) {
          List<float[]> results = new ArrayList<>();
          for (InnerLoops loops : all(vector)) {
            MemorySegment x = segment(arena, scores);
            MemorySegment lanes = segment(arena, sums);
            float max = loops.scaleScores(x, 0, n, 0.7f, before);
            float expected = before;
            for (int j = 0; j < n; j++) {
              expected = Math.max(expected, 0.7f * scores[j]);
            }
            assertEquals(expected, max);
            loops.exponentials(x, 0, Math.max(max, -1), 0.4f, lanes, 0);
            results.add(array(x));
            results.add(array(lanes));
          }
          assertArrayEquals(results.get(0), results.get(2));
          assertArrayEquals(results.get(1), results.get(3));
          float sum = 0;
          float all = 0;
          for (int j = 0; j < InnerLoops.KEYS; j++) {
            assertTrue(j < n == results.get(0)[j] > 0, "key " + j + " of " + n);
            sum += results.get(0)[j];
          }
          for (int lane = 0; lane < InnerLoops.LANES; lane++) {
            all += results.get(1)[lane] - 0.4f * sums[lane];
          }
          assertEquals(sum, all, 1e-4f * (1 + sum));
        }
      }
    }
  }

  @ParameterizedTest
  @MethodSource("vectors")
  void spreads(InnerLoops vector) {
    try (Arena arena = Arena.ofConfined()) {
      float[] scores = floats(InnerLoops.KEYS);
      float[] sums = floats(2 * InnerLoops.LANES);
      for (int n : new int[] {1, 2, 15, 16, 17, 33, 63, 64}) {
        for (int distance : new int[] {0, 5, 63, 1000, -70}) {
          List<float[]> results = new ArrayList<>();
          for (InnerLoops loops : all(vector)) {
            MemorySegment x = segment(arena, scores);
            MemorySegment lanes = segment(arena, sums);
            float _ = loops.scaleScores(x, 0, n, 3, 0);
            float most = loops.spread(x, 0, 2.5f, distance, lanes, 0);
            results.add(array(x));
            results.add(array(lanes));
            results.add(new float[] {most});
          }
          for (int i = 0; i < 3; i++) {
            assertArrayEquals(results.get(i), results.get(i + 3));
          }
          double[] expected = new double[2 * InnerLoops.LANES];
          float most = 0;
          for (int j = 0; j < n; j++) {
            double log = 3 * scores[j] - 2.5;
            assertEquals(Math.exp(log), results.get(0)[j], 1e-6 * Math.exp(log));
            expected[j % 16] += Math.exp(log) * log;
            expected[16 + j % 16] += Math.exp(log) * Math.abs(distance - j);
            most = Math.max(most, results.get(0)[j]);
          }
          for (int i = 0; i < expected.length; i++) {
            assertEquals(
                sums[i] + expected[i],
                results.get(1)[i],
                2e-6 * (1 + Math.abs(expected[i])),
                "lane " + i);
          }
          assertEquals(most, results.get(2)[0]);
        }
      }
    }
  }

  @ParameterizedTest
  @MethodSource("vectors")
  void scaledSums(InnerLoops vector) {
    try (Arena arena = Arena.ofConfined()) {
      for (int n : SIZES) {
        float[] from = floats(n);
        float[] to = floats(n);
        float[] sum = new float[n];
        float[] product = new float[n];
        for (int i = 0; i < n; i++) {
          sum[i] = Math.fma(to[i], 0.3f, from[i]);
          product[i] = from[i] * 0.3f;
        }
        for (InnerLoops loops : all(vector)) {
          MemorySegment result = segment(arena, to);
          loops.scaleAdd(result, 0, 0.3f, segment(arena, from), 0, n);
          assertArrayEquals(sum, array(result));
          loops.scale(segment(arena, from), 0, n, 0.3f, result, 0);
          assertArrayEquals(product, array(result));
        }
      }
      for (InnerLoops loops : all(vector)) {
        int columns = loops.tileColumns();
        float[] from = floats(2 * columns);
        float[] scales = floats(columns);
        float[] to = floats(2 * columns + 5);
        float[] expected = to.clone();
        for (int i = 0; i < 2 * columns; i++) {
          int at = i / columns * (columns + 5) + i % columns;
          expected[at] = Math.fma(from[i], scales[i % columns], expected[at]);
        }
        MemorySegment result = segment(arena, to);
        MemorySegment factors = segment(arena, scales);
        loops.addScaled(segment(arena, from), 0, 2, factors, 0, result, 0, 4L * (columns + 5));
        assertArrayEquals(expected, array(result));
      }
    }
  }

  @ParameterizedTest
  @MethodSource("vectors")
  void activations(InnerLoops vector) {
    try (Arena arena = Arena.ofConfined()) {
      for (Activation f : Activation.values()) {
        for (int n : SIZES) {
          float[] x = floats(n);
          for (int i = 0; i < n; i++) {
            x[i] *= i % 2 == 0 ? 40 : 0.4f;
          }
          MemorySegment one = segment(arena, x);
          MemorySegment two = segment(arena, x);
          scalar.activate(f, one, 0, n);
          vector.activate(f, two, 0, n);
          assertArrayEquals(array(one), array(two), f.toString());
        }
      }
    }
  }

  /** Every finite f16, every bf16 and every byte there is. */
  @ParameterizedTest
  @MethodSource("vectors")
  void wideningIsExact(InnerLoops vector) {
    try (Arena arena = Arena.ofConfined()) {
      for (Precision type : Precision.values()) {
        for (InnerLoops loops : all(vector)) {
          int columns = loops.tileColumns();
          int in = (1 << 16) / columns;
          MemorySegment data = arena.allocate(4L << 16);
          for (int i = 0; i < 1 << 16; i++) {
            data.set(ScalarLoops.I16, 2L * i, (short) i);
          }
          Panels panels = new Panels(type, in, columns, columns, data, MemorySegment.NULL);
          MemorySegment wide = arena.allocate(4L << 16);
          loops.widen(panels, 0, wide);
          for (int i = 0; i < 1 << 16; i++) {
            float expected =
                switch (type) {
                  case F32 -> data.get(ScalarLoops.F32, 4L * i);
                  case F16 -> Float.float16ToFloat((short) panels.place(i));
                  case BF16 -> Float.intBitsToFloat(panels.place(i) << 16);
                  case INT8 -> data.get(ValueLayout.JAVA_BYTE, i);
                };
            if (type != Precision.F16 || Float.isFinite(expected)) {
              assertEquals(expected, wide.get(ScalarLoops.F32, 4L * i), type + " " + i);
            }
          }
        }
      }
    }
  }

  @Test
  void foldsInHalves() {
    float[] lanes = new float[18];
    Arrays.fill(lanes, 1);
    lanes[2] = 0x1p24f; // swallows a 1 added alone, not the 8 that its fold adds first
    assertEquals(0x1p24f + 14, InnerLoops.fold(lanes, 2), 1);
  }
}
