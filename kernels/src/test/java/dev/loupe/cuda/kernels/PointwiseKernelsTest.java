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
import java.util.Random;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.Parameter;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

@OnDevice
@ParameterizedClass
@EnumSource(Serving.class)
class PointwiseKernelsTest {
  private static final int[] LENGTHS = {1, 7, 8, 9, 200, 2047, 2048, 2049, 5000};
  private static final Element[] ELEMENTS = {Element.F32, Element.F16, Element.BF16};

  private static Gpu gpu;
  private static PointwiseKernels kernels;

  @BeforeAll
  static void open() {
    gpu = Emulator.open();
    kernels = new PointwiseKernels(gpu);
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

  @ParameterizedTest
  @CsvSource({"F32,F32", "F16,F16", "BF16,BF16", "F32,F16", "F32,BF16"})
  void residualAddsToTheLastBit(Element x, Element y) {
    for (int n : LENGTHS) {
      Random random = new Random(n);
      float[] a = RoundingTo.nearest(x, gaussian(random, n));
      float[] b = RoundingTo.nearest(y, gaussian(random, n));
      float[] expected = new float[n];
      for (int i = 0; i < n; i++) {
        expected[i] = RoundingTo.nearest(x, a[i] + b[i]);
      }
      try (DeviceBuffer dA = gpu.allocate(x, n);
          DeviceBuffer dB = gpu.allocate(y, n)) {
        dA.upload(a);
        dB.upload(b);
        kernels.addResidual(dA, dB, n);
        float[] got = new float[n];
        dA.download(got);
        assertArrayEquals(expected, got, "n = " + n);
        dB.download(got);
        assertArrayEquals(b, got, "y, n = " + n);
      }
    }
  }

  @Test
  void conversionRoundsToNearestEven() {
    for (Element x : ELEMENTS) {
      for (Element y : ELEMENTS) {
        for (int n : LENGTHS) {
          float[] values = RoundingTo.nearest(x, awkward(n));
          try (DeviceBuffer from = gpu.allocate(x, n);
              DeviceBuffer to = gpu.allocate(y, n)) {
            from.upload(values);
            to.fill((byte) 0xff);
            kernels.convert(from, to, n);
            float[] got = new float[n];
            to.download(got);
            assertArrayEquals(
                RoundingTo.nearest(y, values), got, "%s to %s, n = %d".formatted(x, y, n));
          }
        }
      }
    }
  }

  /** Values at which rounding is easy to get wrong, then random ones of all sizes. */
  private static float[] awkward(int n) {
    float[] special = {
      0f,
      -0f,
      1f,
      0x1.002p0f,
      0x1.006p0f,
      0x1.01p0f,
      0x1.03p0f,
      0x1.0020001p0f,
      65504f,
      65519f,
      65520f,
      -65520f,
      0x1p-24f,
      0x1p-25f,
      0x1.8p-25f,
      0x1.000002p-25f,
      0x1p-14f,
      0x1.ffcp-15f,
      0x1.ffep-15f,
      Float.MAX_VALUE,
      0x1.ffp127f,
      Float.MIN_VALUE,
      0x1p-133f,
      0x1.8p-133f,
      Float.NaN,
      Float.POSITIVE_INFINITY,
      Float.NEGATIVE_INFINITY
    };
    Random random = new Random(n);
    float[] x = new float[n];
    for (int i = 0; i < n; i++) {
      float any = Float.intBitsToFloat(random.nextInt());
      x[i] = i < special.length ? special[i] : Float.isNaN(any) ? 0 : any;
    }
    return x;
  }

  @ParameterizedTest
  @EnumSource
  void activationsFollowTheirDefinitions(KernelActivation activation) {
    for (Element element : ELEMENTS) {
      for (int n : new int[] {7, 2049, 4001}) {
        float[] x = new float[n];
        for (int i = 0; i < n; i++) {
          // dense around 0, and far out, where exponentials overflow
          double t = 2.0 * i / Math.max(n - 1, 1) - 1;
          x[i] = RoundingTo.nearest(element, (float) (i % 2 == 0 ? 8 * t : 200 * t * t * t));
        }
        float[] got = activate(activation, element, x);
        for (int i = 0; i < n; i++) {
          assertActivation(activation, element, x[i], got[i]);
        }
      }
    }
  }

  private static void assertActivation(
      KernelActivation activation, Element element, float x, float y) {
    double expected = defined(activation, x);
    // In 2^-24 of the result, half a unit in the last place at most. CUDA's functions are within so
    // many units of the right float (Programming Guide, mathematical functions): expf and tanhf 2,
    // erfcf 4; so 5 and 9 from the result. A product, a quotient or a sum rounds once.
    double functions = activation == KernelActivation.GELU ? 9 + 1 : 5 + 3;
    // What goes into an exponential was rounded some times (constants too), and what comes out errs
    // by that times the size of the exponent: 7 of GELU_NEW's cubic term. erfc(z) errs by
    // z erfc'(z) / erfc(z), less than 2 z^2 + 1 = x^2 + 1, for each of two roundings of z.
    double exponent =
        switch (activation) {
          case GELU -> 2 * ((double) x * x + 1);
          case GELU_NEW -> 7 * Math.abs(0.044715 * x * x * x + x) * 1.6;
          case SILU, QUICK_GELU -> 2 * 1.702 * Math.abs(x);
          default -> 0;
        };
    double tolerance =
        Math.abs(expected) * ((functions + exponent) * 0x1p-24 + RoundingTo.relative(element))
            + Math.max(RoundingTo.smallest(element), 0x1p-120); // denormals have few digits
    assertEquals(expected, y, tolerance, () -> "%s(%s) in %s".formatted(activation, x, element));
  }

  private static double defined(KernelActivation activation, double x) {
    return switch (activation) {
      case NONE -> x;
      case GELU_NEW ->
          // 0.5 x (1 + tanh(u)), written so that the small results left of 0 keep their digits
          x / (1 + Math.exp(-2 * Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x)));
      case GELU -> 0.5 * x * erfc(-x / Math.sqrt(2));
      case RELU -> Math.max(x, 0);
      case SILU -> x / (1 + Math.exp(-x));
      case TANH -> Math.tanh(x);
      case QUICK_GELU -> x / (1 + Math.exp(-1.702 * x));
    };
  }

  /** 1 - erf(x): its series near 0, its continued fraction far out. */
  private static double erfc(double x) {
    if (x < 0) {
      return 2 - erfc(-x);
    }
    double gauss = Math.exp(-x * x) / Math.sqrt(Math.PI);
    if (x < 2) {
      double term = x;
      double sum = x;
      for (int n = 1; n < 60; n++) {
        term *= 2 * x * x / (2 * n + 1);
        sum += term;
      }
      return 1 - 2 * gauss * sum;
    }
    double fraction = x;
    for (int n = 80; n > 0; n--) {
      fraction = x + n / 2.0 / fraction;
    }
    return gauss / fraction;
  }

  @Test
  void theTestsErfcIsRight() {
    assertEquals(0.15729920705028513, erfc(1), 1e-15);
    assertEquals(0.00002209049699858544, erfc(3), 1e-18);
    assertEquals(1.8427007929497148, erfc(-1), 1e-15);
  }

  @ParameterizedTest
  @EnumSource
  void activationsKeepNaNAndInfinity(KernelActivation activation) {
    float[] y =
        activate(
            activation,
            Element.F32,
            new float[] {Float.NaN, Float.POSITIVE_INFINITY, 0, -1e30f, 1e30f});
    float most = activation == KernelActivation.TANH ? 1 : Float.POSITIVE_INFINITY;
    assertEquals(Float.NaN, y[0]);
    assertEquals(most, y[1]);
    assertEquals(0, y[2]);
    float low =
        activation == KernelActivation.NONE ? -1e30f : activation == KernelActivation.TANH ? -1 : 0;
    assertEquals(low, y[3] + 0f);
    assertEquals(activation == KernelActivation.TANH ? 1 : 1e30f, y[4]);
  }

  private static float[] activate(KernelActivation activation, Element element, float[] x) {
    float[] got = new float[x.length];
    try (DeviceBuffer from = gpu.allocate(element, x.length);
        DeviceBuffer to = gpu.allocate(element, x.length)) {
      from.upload(x);
      to.fill((byte) 0xff);
      kernels.activate(activation, from, to, x.length);
      to.download(got);
      kernels.activate(activation, from, from, x.length);
      float[] inPlace = new float[x.length];
      from.download(inPlace);
      assertArrayEquals(got, inPlace, "in place");
    }
    return got;
  }

  @Test
  void refusesWhatDoesNotFit() {
    try (DeviceBuffer f16 = gpu.allocate(Element.F16, 10);
        DeviceBuffer f32 = gpu.allocate(Element.F32, 10);
        DeviceBuffer i32 = gpu.allocate(Element.I32, 10)) {
      assertRefused(
          "residual: x has 10 elements, needs 11", () -> kernels.addResidual(f32, f16, 11));
      assertRefused("residual: no kernel from F32 to F16", () -> kernels.addResidual(f16, f32, 10));
      assertRefused("residual: x and y are one buffer", () -> kernels.addResidual(f32, f32, 10));
      assertRefused(
          "activation: no kernel from F16 to F32",
          () -> kernels.activate(KernelActivation.RELU, f16, f32, 10));
      assertRefused("conversion: no kernel for F32 and I32", () -> kernels.convert(f32, i32, 10));
      assertRefused("conversion: x and y are one buffer", () -> kernels.convert(f32, f32, 10));
      assertRefused(
          "conversion: n is 0, not between 1 and 549755813632", () -> kernels.convert(f32, f16, 0));
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
