package dev.loupe.cuda.kernels;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.emulator.Emulator;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Random;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;

/** The device, its kernels on logits, and rows of logits to give them. */
abstract class SampleFixture {
  static Gpu gpu;
  static SampleKernels kernels;

  @BeforeAll
  static void open() {
    gpu = Emulator.open();
    kernels = new SampleKernels(gpu);
  }

  @AfterAll
  static void close() {
    gpu.close();
  }

  /** Five kinds of rows, some made to tie. */
  static void fill(float[] row, int kind, Random random) {
    for (int i = 0; i < row.length; i++) {
      double x = random.nextGaussian();
      row[i] =
          switch (kind) {
            case 0 -> (float) (3 * x);
            case 1 -> Math.round(2 * x) / 2f; // many equal ones
            case 2 -> 1.5f; // nothing but equal ones
            case 3 -> random.nextBoolean() ? 80 : -80;
            default -> Float.intBitsToFloat(Float.floatToIntBits(5f) + random.nextInt(4));
          };
    }
  }

  static float[][] kinds(int vocabulary) {
    float[][] logits = new float[5][vocabulary];
    for (int kind = 0; kind < 5; kind++) {
      fill(logits[kind], kind, new Random(kind));
    }
    return logits;
  }

  /** Rows apart by {@code stride}, NaN between them and nothing after the last. */
  static DeviceBuffer upload(float[][] rows, int stride) {
    float[] flat = new float[(rows.length - 1) * stride + rows[0].length];
    Arrays.fill(flat, Float.NaN);
    for (int r = 0; r < rows.length; r++) {
      System.arraycopy(rows[r], 0, flat, r * stride, rows[r].length);
    }
    DeviceBuffer buffer = gpu.allocate(Element.F32, flat.length);
    buffer.upload(flat);
    return buffer;
  }

  static int[] words(BitSet bits, int n) {
    int[] words = new int[n];
    for (int id = bits.nextSetBit(0); id >= 0 && id < 32 * n; id = bits.nextSetBit(id + 1)) {
      words[id / 32] |= 1 << id % 32;
    }
    return words;
  }

  static double[] logSoftmax(float[] logits, double temperature) {
    double max = Double.NEGATIVE_INFINITY;
    for (float logit : logits) {
      max = Math.max(max, logit);
    }
    double sum = 0;
    for (float logit : logits) {
      sum += Math.exp((logit - max) / temperature);
    }
    double[] logprobs = new double[logits.length];
    for (int id = 0; id < logits.length; id++) {
      logprobs[id] = (logits[id] - max) / temperature - Math.log(sum);
    }
    return logprobs;
  }
}
