package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.emulator.RoundingTo;
import java.util.Random;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

@OnDevice
class LayerNormKernelsTest {
  private static final float EPS = 1e-5f;

  private static Gpu gpu;

  @BeforeAll
  static void open() {
    gpu = Emulator.open();
  }

  @AfterAll
  static void close() {
    gpu.close();
  }

  @ParameterizedTest
  @CsvSource({"F32,F32", "F16,F16", "BF16,BF16", "F32,F16", "F32,BF16"})
  void everyVariantFollowsTheDefinition(Element in, Element out) {
    for (Variant variant : LayerNormKernels.VARIANTS) {
      for (int width : new int[] {1, 7, 8, 65, 80, 256, 513, 768, 1600}) {
        if (variant.name().equals("v3") && width % 8 != 0) {
          continue;
        }
        for (int rows : width < 100 ? new int[] {1, 31, 33, 200} : new int[] {1, 7}) {
          assertFollows(variant, in, out, rows, width);
        }
      }
    }
  }

  @Test
  void theOrderOfThreadsChangesNothing() {
    try {
      for (Runnable schedule : Emulator.otherSchedules()) {
        schedule.run();
        for (Variant variant : LayerNormKernels.VARIANTS) {
          for (int width : new int[] {80, 600, 768}) {
            assertFollows(variant, Element.F32, Element.F32, 7, width);
          }
        }
      }
    } finally {
      Emulator.forward();
    }
  }

  private static void assertFollows(Variant variant, Element in, Element out, int rows, int width) {
    Random random = new Random(31L * rows + width);
    float[] x = new float[rows * width];
    for (int i = 0; i < x.length; i++) {
      int row = i / width;
      // rows of different spreads, some far from 0, the last of one value: the variance is 0
      double spread = row == rows - 1 && rows > 1 ? 0 : Math.pow(10, row % 5 - 3);
      x[i] = RoundingTo.nearest(in, (float) (random.nextGaussian() * spread + row % 3 * 10));
    }
    float[] gamma = gaussian(random, width);
    float[] beta = gaussian(random, width);
    float[] got = normalize(variant, in, out, x, gamma, beta, rows, width);
    for (int r = 0; r < rows; r++) {
      assertRow(
          "%s %s to %s, R = %d, C = %d, row %d".formatted(variant.name(), in, out, rows, width, r),
          variant,
          out,
          x,
          gamma,
          beta,
          got,
          r * width,
          width);
    }
  }

  private static void assertRow(
      String label,
      Variant variant,
      Element out,
      float[] x,
      float[] gamma,
      float[] beta,
      float[] got,
      int start,
      int width) {
    double mean = 0;
    double size = 0;
    for (int c = 0; c < width; c++) {
      mean += x[start + c];
      size += Math.abs(x[start + c]);
    }
    mean /= width;
    size /= width;
    double variance = 0;
    for (int c = 0; c < width; c++) {
      variance += (x[start + c] - mean) * (x[start + c] - mean);
    }
    variance /= width;
    double scale = 1 / Math.sqrt(variance + EPS);
    // A sum of f32 errs by at most its additions in a row, each by 2^-24 of what was added so far.
    int additions =
        switch (variant.name()) {
          case "v1" -> width;
          case "v2" -> Math.ceilDiv(width, 256) + 5 + 8;
          default -> 4 * Math.ceilDiv(width, 256) + 5;
        };
    double meanError = (additions + 2) * 0x1p-24 * size;
    for (int c = 0; c < width; c++) {
      double d = x[start + c] - mean;
      double y = d * scale * gamma[c] + beta[c];
      double tolerance =
          Math.abs(scale * gamma[c]) * meanError // of the difference from the mean
              + Math.abs(d * scale * gamma[c])
                  * ((additions + 8) * 0x1p-24 + Math.pow(scale * meanError, 2)) // of the variance
              + (Math.abs(y) + Math.abs(beta[c])) * (0x1p-23 + RoundingTo.relative(out))
              + RoundingTo.smallest(out);
      double error = Math.abs(got[start + c] - y);
      if (!(error <= tolerance)) {
        assertEquals(y, got[start + c], tolerance, label + ", column " + c);
      }
    }
  }

  private static float[] normalize(
      Variant variant,
      Element in,
      Element out,
      float[] x,
      float[] gamma,
      float[] beta,
      int rows,
      int width) {
    float[] got = new float[x.length];
    try (DeviceBuffer dX = gpu.allocate(in, x.length);
        DeviceBuffer dGamma = gpu.allocate(Element.F32, width);
        DeviceBuffer dBeta = gpu.allocate(Element.F32, width);
        DeviceBuffer y = gpu.allocate(out, x.length)) {
      dX.upload(x);
      dGamma.upload(gamma);
      dBeta.upload(beta);
      y.fill((byte) 0xff);
      LayerNormKernels kernels = new LayerNormKernels(gpu);
      kernels.normalize(variant, dX, dGamma, dBeta, y, rows, width, EPS);
      y.download(got);
      if (in == out) {
        kernels.normalize(variant, dX, dGamma, dBeta, dX, rows, width, EPS);
        float[] inPlace = new float[x.length];
        dX.download(inPlace);
        assertArrayEquals(got, inPlace, "in place");
      }
    }
    return got;
  }

  @Test
  void refusesWhatDoesNotFit() {
    try (DeviceBuffer x = gpu.allocate(Element.F16, 32);
        DeviceBuffer weights = gpu.allocate(Element.F32, 16);
        DeviceBuffer y = gpu.allocate(Element.F32, 32)) {
      LayerNormKernels kernels = new LayerNormKernels(gpu);
      assertRefused(
          "layernorm v3: no kernel from F16 to F32",
          () -> kernels.normalize(x, weights, weights, y, 2, 16, EPS));
      assertRefused(
          "layernorm v3: width is 12, not a multiple of 8",
          () ->
              kernels.normalize(
                  LayerNormKernels.VARIANTS.get(2), x, weights, weights, x, 2, 12, EPS));
      assertRefused(
          "layernorm v2: gamma has 16 elements, needs 17",
          () -> kernels.normalize(y, weights, weights, y, 1, 17, EPS));
      assertRefused(
          "layernorm v3: x has 32 elements, needs 48",
          () -> kernels.normalize(x, weights, weights, x, 3, 16, EPS));
      assertRefused(
          "layernorm v3: eps is 0.0, not more than 0",
          () -> kernels.normalize(x, weights, weights, x, 2, 16, 0));
      assertRefused(
          "layernorm v3: gamma holds F16, not F32",
          () -> kernels.normalize(x, x, weights, x, 2, 16, EPS));
    }
  }

  private static void assertRefused(String message, Runnable call) {
    assertEquals(message, assertThrows(IllegalArgumentException.class, call::run).getMessage());
  }

  private static float[] gaussian(Random random, int n) {
    float[] x = new float[n];
    for (int i = 0; i < n; i++) {
      x[i] = (float) random.nextGaussian();
    }
    return x;
  }
}
