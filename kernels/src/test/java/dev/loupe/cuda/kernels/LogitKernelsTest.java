package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.emulator.OnDevice;
import java.util.BitSet;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The largest logit, softmax and log-probabilities. */
@OnDevice
class LogitKernelsTest extends SampleFixture {
  @Test
  void argmaxTakesTheLowestOfTheLargest() {
    for (int vocabulary : new int[] {1, 7, 1000, 50257}) {
      float[][] logits = kinds(vocabulary);
      BitSet allowed = new BitSet();
      allowed.set(vocabulary / 3, vocabulary);
      int words = Math.ceilDiv(vocabulary, 32);
      try (DeviceBuffer values = upload(logits, vocabulary);
          DeviceBuffer set = gpu.allocate(Element.I32, words);
          DeviceBuffer ids = gpu.allocate(Element.I32, 5);
          DeviceBuffer errors = gpu.allocate(Element.I32, 5)) {
        set.upload(words(allowed, words));
        SampleKernels.Logits rows = new SampleKernels.Logits(values, 5, vocabulary);
        int[] got = new int[5];
        kernels.argmax(rows, null, ids, errors);
        ids.download(got);
        assertArrayEquals(best(logits, 0), got);
        kernels.argmax(rows, set, ids, errors);
        ids.download(got);
        assertArrayEquals(best(logits, vocabulary / 3), got);
        errors.download(got);
        assertArrayEquals(new int[5], got);
      }
    }
  }

  private static int[] best(float[][] logits, int from) {
    int[] best = new int[logits.length];
    for (int r = 0; r < best.length; r++) {
      best[r] = from;
      for (int id = from; id < logits[r].length; id++) {
        best[r] = logits[r][id] > logits[r][best[r]] ? id : best[r];
      }
    }
    return best;
  }

  @Test
  void argmaxReportsRowsWithoutAnAnswer() {
    float[][] logits = new float[3][9];
    logits[1][8] = Float.NaN;
    try (DeviceBuffer values = upload(logits, 9);
        DeviceBuffer none = gpu.allocate(Element.I32, 1);
        DeviceBuffer ids = gpu.allocate(Element.I32, 3);
        DeviceBuffer errors = gpu.allocate(Element.I32, 3)) {
      none.upload(new int[1]);
      int[] got = new int[3];
      kernels.argmax(new SampleKernels.Logits(values, 3, 9), none, ids, errors);
      errors.download(got);
      assertArrayEquals(
          new int[] {SampleKernels.NO_ID, SampleKernels.NOT_FINITE, SampleKernels.NO_ID}, got);
      ids.download(got);
      assertArrayEquals(new int[] {-1, -1, -1}, got);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 7, 1000, 50257})
  void softmaxAndItsLogFollowTheDefinition(int vocabulary) {
    float[][] logits = kinds(vocabulary);
    int stride = vocabulary + 1;
    for (float temperature : new float[] {1, 0.5f, 3}) {
      for (boolean log : new boolean[] {true, false}) {
        float[] got = new float[4 * stride + vocabulary];
        try (DeviceBuffer values = upload(logits, stride);
            DeviceBuffer y = gpu.allocate(Element.F32, got.length)) {
          y.fill((byte) 0xff);
          SampleKernels.Logits rows = new SampleKernels.Logits(values, 5, vocabulary, stride);
          kernels.softmax(rows, y, temperature, log);
          y.download(got);
          kernels.softmax(rows, values, temperature, log);
          float[] inPlace = new float[got.length];
          values.download(inPlace);
          assertArrayEquals(got, inPlace, "in place");
        }
        for (int r = 0; r < 5; r++) {
          assertSoftmax(logits[r], temperature, log, got, r * stride);
        }
      }
    }
  }

  private static void assertSoftmax(
      float[] logits, float temperature, boolean log, float[] got, int start) {
    double[] logprobs = logSoftmax(logits, temperature);
    double sum = 0;
    for (int id = 0; id < logits.length; id++) {
      // A score errs by 2^-23 of its size, a probability by that times itself. The sum errs by its
      // additions in a row: as many as a thread has ids, then 5 in the warp and 32 over warps.
      double relative = 0x1p-23 * (Math.abs(logprobs[id]) + 24 + Math.ceilDiv(logits.length, 1024));
      double expected = log ? logprobs[id] : Math.exp(logprobs[id]);
      double tolerance = log ? relative : expected * relative + 0x1p-126;
      assertEquals(expected, got[start + id], tolerance, "id " + id);
      sum += log ? Math.exp(got[start + id]) : got[start + id];
    }
    assertEquals(1, sum, 1e-5);
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 7, 1000, 50257})
  void logprobsFollowTheDefinition(int vocabulary) {
    float[][] logits = kinds(vocabulary);
    for (int stride : new int[] {vocabulary, Math.ceilDiv(vocabulary + 1, 4) * 4}) {
      try (DeviceBuffer values = upload(logits, stride);
          DeviceBuffer of = gpu.allocate(Element.I32, 5);
          DeviceBuffer y = gpu.allocate(Element.F32, 6)) {
        for (int first : new int[] {0, vocabulary / 2}) {
          int[] ids = {first, vocabulary - 1, -1, 0, vocabulary - 1 - first};
          of.upload(ids);
          y.fill((byte) 0xff);
          kernels.logprobs(new SampleKernels.Logits(values, 5, vocabulary, stride), of, y);
          float[] got = new float[6];
          y.download(got);
          for (int r = 0; r < 5; r++) {
            double expected = ids[r] < 0 ? Double.NaN : logSoftmax(logits[r], 1)[ids[r]];
            double tolerance =
                0x1p-23 * (Math.abs(expected) + 24 + Math.ceilDiv(vocabulary, 1024)); // as above
            assertEquals(expected, got[r], ids[r] < 0 ? 0 : tolerance, "row " + r);
          }
          assertEquals(-1, Float.floatToRawIntBits(got[5]), "no more than the rows");
        }
      }
    }
  }

  @Test
  void logprobsOfWhatIsNotFiniteAreNan() {
    float[][] logits = new float[5][100];
    logits[1][99] = Float.NaN;
    logits[2][40] = Float.POSITIVE_INFINITY;
    logits[4][50] = Float.NEGATIVE_INFINITY;
    try (DeviceBuffer values = upload(logits, 100);
        DeviceBuffer of = gpu.allocate(Element.I32, 5);
        DeviceBuffer y = gpu.allocate(Element.F32, 5)) {
      of.upload(new int[] {0, 1, 40, 3, 50});
      kernels.logprobs(new SampleKernels.Logits(values, 5, 100), of, y);
      float[] got = new float[5];
      y.download(got);
      float even = (float) -Math.log(100);
      assertArrayEquals(
          new float[] {even, Float.NaN, Float.NaN, even, Float.NEGATIVE_INFINITY}, got, 1e-5f);
    }
  }
}
