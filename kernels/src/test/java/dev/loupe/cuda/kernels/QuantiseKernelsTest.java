package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.emulator.RoundingTo;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

@OnDevice
@ParameterizedClass
@EnumSource(Serving.class)
class QuantiseKernelsTest extends WeightFixture {
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
          chunks(element, x, in, outputs, n, (c, f, rows) -> kernels.quantise(c, f, rows, q.map()));
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
            (c, f, n) -> kernels.quantiseTable(c, f, n, q.map()));
        assertQuantised(w, q, "table, %s [%d, %d]".formatted(element, in, outputs));
      }
    }
  }

  @Test
  void quantisingLeavesOtherGroupsAlone() {
    int in = 200;
    int outputs = 5;
    try (Matrix q = Matrix.of(Element.I8, in, outputs);
        DeviceBuffer zero = gpu.allocate(Element.F32, 64L * outputs)) {
      zero.fill((byte) 0);
      kernels.quantise(zero, 64, 64, q.map());
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
          chunk(Element.F32, x, outputs, 0, in, (c, f, n) -> kernels.quantise(c, f, n, q.map()));
          chunk(
              Element.F32,
              w,
              in,
              0,
              outputs,
              (c, f, n) -> kernels.quantiseTable(c, f, n, table.map()));
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
          from.w().upload(MemorySegment.ofArray(q));
          from.scales().upload(scales);
          out.fill(POISON);
          kernels.dequantise(from.map(), out);
          float[] got = new float[expected.length];
          out.download(got);
          assertArrayEquals(expected, got, "%s [%d, %d]".formatted(element, outputs, in));
        }
      }
    }
  }
}
