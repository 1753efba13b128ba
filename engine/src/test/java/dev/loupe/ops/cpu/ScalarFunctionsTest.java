package dev.loupe.ops.cpu;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.model.ReferenceActivation;
import dev.loupe.weights.config.Activation;
import org.junit.jupiter.api.Test;

class ScalarFunctionsTest {
  @Test
  void expIsWithinTwoUlp() {
    double worst = 0;
    for (float x = -87.3f; x < 88.3f; x += 0.00037f) {
      double expected = StrictMath.exp(x);
      double error = Math.abs(ScalarFunctions.exp(x) - expected) / Math.ulp((float) expected);
      worst = Math.max(worst, error);
    }
    System.out.println("exp: worst error %.2f ulp".formatted(worst));
    assertTrue(worst <= 2, worst + " ulp");
    assertEquals(0, ScalarFunctions.exp(Float.NEGATIVE_INFINITY));
    assertEquals(0, ScalarFunctions.exp(-100));
    assertEquals(1, ScalarFunctions.exp(0));
    assertTrue(Float.isFinite(ScalarFunctions.exp(1000)));
    assertTrue(Float.isNaN(ScalarFunctions.exp(Float.NaN)));
  }

  @Test
  void tanhIsWithinTwoUlp() {
    double worst = 0;
    for (float x = -10; x < 10; x += 0.000037f) {
      double expected = StrictMath.tanh(x);
      double error = Math.abs(ScalarFunctions.tanh(x) - expected) / Math.ulp((float) expected);
      worst = Math.max(worst, error);
    }
    for (float x = 1e-38f; x < 1; x *= 1.01f) {
      assertEquals(StrictMath.tanh(x), ScalarFunctions.tanh(x), 2 * Math.ulp(x), "x = " + x);
    }
    System.out.println("tanh: worst error %.2f ulp".formatted(worst));
    assertTrue(worst <= 2, worst + " ulp");
    assertEquals(1, ScalarFunctions.tanh(Float.POSITIVE_INFINITY));
    assertEquals(-1, ScalarFunctions.tanh(Float.NEGATIVE_INFINITY));
    assertTrue(Float.isNaN(ScalarFunctions.tanh(Float.NaN)));
  }

  @Test
  void activationsAreRight() {
    // relative to |x| + |y| + 1: the sums inside are f32
    for (Activation f : Activation.values()) {
      for (float x = -12; x <= 12; x += 0.01f) {
        double expected = ReferenceActivation.of(f, x);
        double near = 4e-7 * (Math.abs(x) + Math.abs(expected) + 1);
        assertEquals(expected, ScalarFunctions.activate(f, x), near, f + " " + x);
      }
    }
    assertArrayEquals(
        new float[] {0, -0f, 200},
        new float[] {
          ScalarFunctions.activate(Activation.GELU_NEW, 0),
          ScalarFunctions.activate(Activation.GELU_NEW, -200),
          ScalarFunctions.activate(Activation.GELU_NEW, 200)
        },
        1e-30f);
  }
}
