package dev.loupe.cuda.probe;

import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.emulator.RoundingTo;
import java.util.Random;

/**
 * D [16, 8] += A [16, K] B [K, 8] by the lanes of a warp.
 *
 * @param sixteen the type of two values in a register, or F32 for tf32, one in a register
 */
record MatrixProbe(String kernel, int k, Element sixteen) {
  static final MatrixProbe SIXTEEN_F16 = new MatrixProbe("probe_mma_f16", 16, Element.F16);
  static final MatrixProbe SIXTEEN_BF16 = new MatrixProbe("probe_mma_bf16", 16, Element.BF16);
  static final MatrixProbe EIGHT_TF32 = new MatrixProbe("probe_mma_tf32", 8, Element.F32);

  private static final int ROWS = 16;
  private static final int COLUMNS = 8;

  /** Small integers, whose sums are exact; then any values; then infinities, NaN, subnormals. */
  void check(ProbeDevice device) {
    Random random = new Random(k);
    check(device, "integers", () -> random.nextInt(-8, 9), 0);
    // cut to f32 after each 4 products at least, and aligned to the largest
    check(device, "values", () -> random.nextGaussian(), 8 * 0x1p-23);
    check(
        device, "wide", () -> random.nextGaussian() * Math.pow(2, random.nextInt(-9, 9)), 0x1p-20);
    check(
        device,
        "awkward",
        () ->
            switch (random.nextInt(60)) {
              case 0 -> Double.POSITIVE_INFINITY;
              case 1 -> Double.NaN;
              case 2 -> -0.0;
              case 3 -> 0x1p-24; // subnormal in f16
              default -> random.nextInt(-8, 9);
            },
        0x1p-20);
  }

  private interface Values {
    double next();
  }

  private void check(ProbeDevice device, String what, Values values, double relative) {
    float[][] a = matrix(ROWS, k, values);
    float[][] b = matrix(k, COLUMNS, values);
    float[] d = new float[32 * 4];
    double[][] expected = new double[ROWS][COLUMNS];
    double[][] magnitude = new double[ROWS][COLUMNS];
    for (int row = 0; row < ROWS; row++) {
      for (int n = 0; n < COLUMNS; n++) {
        float c = (float) values.next();
        d[slot(row, n)] = c;
        expected[row][n] = c;
        magnitude[row][n] = Math.abs(c);
        for (int i = 0; i < k; i++) {
          double product = (double) a[row][i] * b[i][n];
          expected[row][n] += product;
          magnitude[row][n] += Math.abs(product);
        }
      }
    }
    device.run(kernel, ProbeDevice.Shape.of(32, 0), left(a), right(b), d);
    for (int row = 0; row < ROWS; row++) {
      for (int n = 0; n < COLUMNS; n++) {
        Probe.close(
            "%s: D of row %d, column".formatted(what, row),
            n,
            expected[row][n],
            d[slot(row, n)],
            relative * magnitude[row][n]);
      }
    }
  }

  /** Values that the type holds. */
  private float[][] matrix(int rows, int columns, Values values) {
    float[][] of = new float[rows][columns];
    for (float[] row : of) {
      for (int i = 0; i < columns; i++) {
        float x = (float) values.next();
        row[i] =
            sixteen == Element.F32
                ? (float) AwkwardFloats.tiesAway(x, 10)
                : RoundingTo.nearest(sixteen, x);
      }
    }
    return of;
  }

  /**
   * Where an element of D lies in [lane][4]: lane = 4 g + t, row g or g + 8, columns 2 t, 2 t + 1.
   */
  private static int slot(int row, int n) {
    return (row % 8 * 4 + n / 2) * 4 + row / 8 * 2 + n % 2;
  }

  private int[] left(float[][] a) {
    int[] registers = new int[32 * 4];
    for (int row = 0; row < ROWS; row++) {
      for (int i = 0; i < k; i++) {
        if (sixteen == Element.F32) {
          int lane = row % 8 * 4 + i % 4;
          registers[lane * 4 + row / 8 + i / 4 * 2] = Float.floatToRawIntBits(a[row][i]);
        } else {
          int lane = row % 8 * 4 + i % 8 / 2;
          registers[lane * 4 + row / 8 + i / 8 * 2] |= bits(a[row][i]) << (i % 2 * 16);
        }
      }
    }
    return registers;
  }

  private int[] right(float[][] b) {
    int[] registers = new int[32 * 2];
    for (int i = 0; i < k; i++) {
      for (int n = 0; n < COLUMNS; n++) {
        if (sixteen == Element.F32) {
          registers[(n * 4 + i % 4) * 2 + i / 4] = Float.floatToRawIntBits(b[i][n]);
        } else {
          registers[(n * 4 + i % 8 / 2) * 2 + i / 8] |= bits(b[i][n]) << (i % 2 * 16);
        }
      }
    }
    return registers;
  }

  private int bits(float x) {
    return sixteen == Element.F16
        ? Float.floatToFloat16(x) & 0xffff
        : Float.floatToRawIntBits(x) >>> 16;
  }
}
