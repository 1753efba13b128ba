package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.emulator.RoundingTo;
import dev.loupe.cuda.emulator.Schedules;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

@OnDevice
@ParameterizedClass
@EnumSource(Serving.class)
class WeightKernelsTest extends WeightFixture {
  private static final Element[] ELEMENTS = {Element.F32, Element.F16, Element.BF16};

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
                from,
                x,
                in,
                outputs,
                n,
                (c, first, rows) -> kernels.repack(c, first, rows, w.map()));
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
      chunk(Element.F16, x, outputs, 41, 35, (c, first, n) -> kernels.repack(c, first, n, w.map()));
      assertArrayEquals(poisonedBeyond(expected), w.floats());
    }
  }

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
          chunk(Element.F16, x, outputs, 0, in, (c, f, n) -> kernels.quantise(c, f, n, q.map()));
          assertQuantised(w, q, "quantised");
          chunk(Element.F16, x, outputs, 0, in, (c, f, n) -> kernels.repack(c, f, n, half.map()));
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
          () -> kernels.repack(chunk, 0, 101, f32.map()));
      assertRefused(
          "repack: first is 150, not between 0 and 149",
          () -> kernels.repack(chunk, 150, 1, f32.map()));
      assertRefused(
          "repack: first is -1, not between 0 and 149",
          () -> kernels.repack(chunk, -1, 1, f32.map()));
      assertRefused(
          "repack: n is 51, not between 1 and 50", () -> kernels.repack(chunk, 100, 51, f32.map()));
      assertRefused(
          "repack: n is 0, not between 1 and 150", () -> kernels.repack(chunk, 0, 0, f32.map()));
      assertRefused(
          "repack: W holds I8, not F32, F16 or BF16", () -> kernels.repack(chunk, 0, 1, i8.map()));
      assertRefused(
          "repack: chunk holds I32, not F32, F16 or BF16",
          () -> kernels.repack(ids, 0, 1, f32.map()));
      assertRefused("repack: chunk is closed", () -> kernels.repack(closed, 0, 1, f32.map()));
      assertRefused(
          "repack: W and chunk are one buffer", () -> kernels.repack(f32.w(), 0, 1, f32.map()));

      assertRefused(
          "quantise: W holds F32, not I8", () -> kernels.quantise(chunk, 0, 64, f32.map()));
      assertRefused(
          "quantise: rows 1 to 65 of 150 cut a group of 64",
          () -> kernels.quantise(chunk, 1, 64, i8.map()));
      assertRefused(
          "quantise: rows 0 to 65 of 150 cut a group of 64",
          () -> kernels.quantise(chunk, 0, 65, i8.map()));
      assertRefused(
          "quantise: chunk has 1000 elements, needs 1280",
          () -> kernels.quantise(chunk, 0, 128, i8.map()));
      assertRefused(
          "quantise: n is 2, not between 1 and 1",
          () -> kernels.quantiseTable(chunk, 9, 2, i8.map()));
      assertRefused(
          "quantise: chunk has 1000 elements, needs 1050",
          () -> kernels.quantiseTable(chunk, 0, 7, i8.map()));

      assertRefused(
          "dequantise: out has 1000 elements, needs 1500",
          () -> kernels.dequantise(i8.map(), chunk));
      assertRefused(
          "dequantise: out holds I32, not F32, F16 or BF16",
          () -> kernels.dequantise(i8.map(), ids));
      assertRefused("dequantise: out is closed", () -> kernels.dequantise(i8.map(), closed));
      assertRefused("dequantise: W holds F32, not I8", () -> kernels.dequantise(f32.map(), chunk));
      assertRefused(
          "repack: in is 1048577, not between 1 and 1048576",
          () -> {
            try (Matrix wide = Matrix.of(Element.F16, (1 << 20) + 1, 1)) {
              kernels.repack(chunk, 0, 1, wide.map());
            }
          });
      i8.scales().close();
      assertRefused("quantise: scales is closed", () -> kernels.quantise(chunk, 0, 64, i8.map()));
    }
  }

  private static void assertRefused(String message, Runnable call) {
    assertEquals(message, assertThrows(IllegalArgumentException.class, call::run).getMessage());
  }
}
