package dev.loupe.ops.cpu;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.model.ReferenceActivation;
import dev.loupe.weights.Activation;
import dev.loupe.weights.DType;
import java.io.InputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandles;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** The twins give the same bits, on vectors of every width, and those bits are right. */
class InnerLoopsTest {
  private static final int[] SIZES = {1, 2, 3, 4, 7, 8, 15, 16, 17, 25, 31, 32, 33, 64, 65, 200};

  private final InnerLoops scalar = new ScalarLoops();
  private final Random random = new Random(20_26);

  static List<InnerLoops> vectors() throws Exception {
    List<InnerLoops> all = new ArrayList<>();
    for (int bits : new int[] {128, 256, 512}) {
      all.add(vectorsOf(bits));
    }
    return all;
  }

  /** The vector width is a constant of the class, so each width needs a copy of the class. */
  private static InnerLoops vectorsOf(int bits) throws Exception {
    System.setProperty(VectorLoops.BITS_PROPERTY, String.valueOf(bits));
    try (InputStream in = VectorLoops.class.getResourceAsStream("VectorLoops.class")) {
      MethodHandles.Lookup copy = MethodHandles.lookup().defineHiddenClass(in.readAllBytes(), true);
      InnerLoops loops = (InnerLoops) copy.lookupClass().getDeclaredConstructor().newInstance();
      assertEquals(bits + "-bit vectors", loops.toString());
      return loops;
    } finally {
      System.clearProperty(VectorLoops.BITS_PROPERTY);
    }
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

  @ParameterizedTest
  @MethodSource("vectors")
  void matrixProducts(InnerLoops vector) {
    try (Arena arena = Arena.ofConfined()) {
      for (int n : SIZES) {
        for (int rows = 1; rows <= InnerLoops.STREAMS; rows++) {
          MemorySegment x = segment(arena, floats(rows));
          MemorySegment w = segment(arena, floats(rows * (n + 3)));
          float[] one = floats(n + 5);
          float[] two = one.clone();
          scalar.addRows(x, 0, rows, w, 0, 4L * (n + 3), n, one, 5);
          vector.addRows(x, 0, rows, w, 0, 4L * (n + 3), n, two, 5);
          assertArrayEquals(one, two);
        }
        MemorySegment x = segment(arena, floats(n));
        MemorySegment w = segment(arena, floats(4 * n));
        float[] one = new float[4];
        float[] two = new float[4];
        scalar.dotFour(x, 0, w, 0, 4L * n, n, one);
        vector.dotFour(x, 0, w, 0, 4L * n, n, two);
        assertArrayEquals(one, two);
        tiles(arena, vector, n);
      }
    }
  }

  /** Tiles differ in width between the twins, so each is held to the sum's definition. */
  private void tiles(Arena arena, InnerLoops vector, int inner) {
    for (int rows = 1; rows <= InnerLoops.TILE_ROWS; rows++) {
      float[] x = floats(rows * inner);
      for (InnerLoops loops : List.of(scalar, vector)) {
        int columns = loops.tileColumns();
        float[] panel = floats(inner * columns);
        float[] tile = floats(InnerLoops.TILE_ROWS * columns);
        float[] expected = tile.clone();
        for (int m = 0; m < rows; m++) {
          for (int j = 0; j < columns; j++) {
            for (int k = 0; k < inner; k++) {
              int t = m * columns + j;
              expected[t] = Math.fma(x[m * inner + k], panel[k * columns + j], expected[t]);
            }
          }
        }
        loops.multiplyTile(
            segment(arena, x), 0, 4L * inner, rows, inner, segment(arena, panel), tile);
        assertArrayEquals(expected, tile);
      }
    }
  }

  @ParameterizedTest
  @MethodSource("vectors")
  void attentionTile(InnerLoops vector) {
    try (Arena arena = Arena.ofConfined()) {
      for (int d : SIZES) {
        MemorySegment q = segment(arena, floats(d));
        MemorySegment keys = segment(arena, floats(InnerLoops.KEYS * d));
        MemorySegment values = segment(arena, floats(InnerLoops.KEYS * d));
        for (int n : new int[] {1, 2, 15, 16, 17, 33, 63, 64}) {
          float[] one = new float[InnerLoops.KEYS];
          float[] two = new float[InnerLoops.KEYS];
          scalar.scoreKeys(q, 0, d, keys, 0, 0.7f, one);
          vector.scoreKeys(q, 0, d, keys, 0, 0.7f, two);
          assertArrayEquals(one, two);
          float max = scalar.max(one, n);
          assertEquals(max, vector.max(two, n));
          assertEquals(scalar.exponentials(one, n, max), vector.exponentials(two, n, max));
          assertArrayEquals(one, two);
          float[] o1 = floats(d + 3);
          float[] o2 = o1.clone();
          scalar.addValues(one, n, values, 0, d, 0.4f, o1, 3);
          vector.addValues(two, n, values, 0, d, 0.4f, o2, 3);
          assertArrayEquals(o1, o2);
        }
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
            x[i] *= 40;
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

  /** Every f16 and every bf16 there is. */
  @ParameterizedTest
  @MethodSource("vectors")
  void wideningIsExact(InnerLoops vector) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment halves = arena.allocate(2L << 16);
      for (int i = 0; i < 1 << 16; i++) {
        halves.setAtIndex(ValueLayout.JAVA_SHORT, i, (short) i);
      }
      for (DType dtype : List.of(DType.F16, DType.BF16)) {
        for (InnerLoops loops : List.of(scalar, vector)) {
          int n = (1 << 16) - 1; // an odd number, so that there is a tail
          MemorySegment wide = arena.allocate(4L * n);
          loops.widen(dtype, halves, 0, n, wide, 0);
          for (int i = 0; i < n; i++) {
            float expected =
                dtype == DType.F16
                    ? Float.float16ToFloat((short) i)
                    : Float.intBitsToFloat(i << 16);
            float actual = wide.getAtIndex(ValueLayout.JAVA_FLOAT, i);
            assertEquals(expected, actual, dtype + " " + i); // all NaN are one to assertEquals
          }
        }
      }
    }
  }

  @Test
  void expIsWithinTwoUlp() {
    double worst = 0;
    for (float x = -87.3f; x < 88.3f; x += 0.00037f) {
      double expected = StrictMath.exp(x);
      double error = Math.abs(ScalarLoops.exp(x) - expected) / Math.ulp((float) expected);
      worst = Math.max(worst, error);
    }
    System.out.println("exp: worst error %.2f ulp".formatted(worst));
    assertTrue(worst <= 2, worst + " ulp");
    assertEquals(0, ScalarLoops.exp(Float.NEGATIVE_INFINITY));
    assertEquals(0, ScalarLoops.exp(-100));
    assertEquals(1, ScalarLoops.exp(0));
    assertTrue(Float.isFinite(ScalarLoops.exp(1000)));
    assertTrue(Float.isNaN(ScalarLoops.exp(Float.NaN)));
  }

  @Test
  void activationsAreRight() {
    // relative to |x| + 1: the sums inside are f32
    for (Activation f : Activation.values()) {
      for (float x = -12; x <= 12; x += 0.01f) {
        double expected = ReferenceActivation.of(f, x);
        assertEquals(expected, ScalarLoops.activate(f, x), 4e-7 * (Math.abs(x) + 1), f + " " + x);
      }
    }
    assertArrayEquals(
        new float[] {0, -0f, 200},
        new float[] {
          ScalarLoops.activate(Activation.GELU_NEW, 0),
          ScalarLoops.activate(Activation.GELU_NEW, -200),
          ScalarLoops.activate(Activation.GELU_NEW, 200)
        },
        1e-30f);
  }

  @Test
  void foldsInHalves() {
    float[] lanes = new float[18];
    Arrays.fill(lanes, 1);
    lanes[2] = 0x1p24f; // swallows a 1 added alone, not the 8 that its fold adds first
    assertEquals(0x1p24f + 14, InnerLoops.fold(lanes, 2), 1);
  }
}
