package dev.loupe.ops.cpu;

import static dev.loupe.ops.cpu.InnerLoops.EXP_HIGH;
import static dev.loupe.ops.cpu.InnerLoops.EXP_LOW;
import static dev.loupe.ops.cpu.InnerLoops.LN2_HIGH;
import static dev.loupe.ops.cpu.InnerLoops.LN2_LOW;
import static dev.loupe.ops.cpu.InnerLoops.LOG2_E;
import static dev.loupe.ops.cpu.InnerLoops.ROUNDER;

import dev.loupe.weights.config.Activation;

/** The functions of one number that the loops apply: e^x, tanh and the activations. */
final class ScalarFunctions {
  static final float GELU_CUBIC = 0.044715f;
  static final float GELU_SCALE = (float) (2 * Math.sqrt(2 / Math.PI));
  static final float LEAK = 0.01f;

  /** From here on tanh(ln(1 + e^x)) is 1 in single precision, and e^2x still far from infinity. */
  static final float MISH_LARGE = 20;

  static final float TANH_SMALL = 0.625f;

  /** The coefficients of x^19, x^17, ... x^3. */
  static final float[] TANH = {
    (float) (-443861162 / 1856156927625.),
    (float) (6404582 / 10854718875.),
    (float) (-929569 / 638512875.),
    (float) (21844 / 6081075.),
    (float) (-1382 / 155925.),
    62 / 2835f,
    -17 / 315f,
    2 / 15f,
    -1 / 3f
  };

  private ScalarFunctions() {}

  static float activate(Activation f, float x) {
    return switch (f) {
      // 0.5 (1 + tanh(u)) = sigmoid(2u), which loses nothing where tanh(u) is near -1
      case GELU_NEW -> timesSigmoid(x, gelu2u(x));
      case GELU -> gelu(x);
      case GELU_10 -> Math.clamp(gelu(x), -10f, 10f);
      case RELU -> Math.max(x, 0);
      case RELU2 -> Math.max(x, 0) * Math.max(x, 0);
      case RELU6 -> Math.min(Math.max(x, 0), 6);
      case LEAKY_RELU -> x < 0 ? LEAK * x : x;
      case SIGMOID -> 1 / (exp(-x) + 1);
      case MISH -> mish(x);
      case SILU -> timesSigmoid(x, x);
      case TANH -> tanh(x);
      case QUICK_GELU -> timesSigmoid(x, 1.702f * x);
    };
  }

  private static float gelu(float x) {
    return (float) (0.5 * x * (1 + Erf.of(x * Math.sqrt(0.5))));
  }

  /** With n = e^2x + 2 e^x, tanh(ln(1 + e^x)) is n / (n + 2). */
  private static float mish(float x) {
    float e = exp(Math.min(x, MISH_LARGE));
    float n = e * (e + 2);
    return x * (n / (n + 2));
  }

  private static float gelu2u(float x) {
    return GELU_SCALE * (GELU_CUBIC * x * x * x + x);
  }

  private static float timesSigmoid(float x, float z) {
    return x / (1 + exp(-z));
  }

  /**
   * e^x within 2 ulp: 0 below {@link InnerLoops#EXP_LOW}, saturating above {@link
   * InnerLoops#EXP_HIGH}, NaN for NaN. A Taylor polynomial of degree 7 on |r| &lt;= ln 2 / 2 leaves
   * a relative error of 5e-9.
   */
  static float exp(float x) {
    float z = Math.min(Math.max(x, EXP_LOW), EXP_HIGH);
    float rounded = Math.fma(z, LOG2_E, ROUNDER);
    float n = rounded - ROUNDER;
    float r = Math.fma(n, -LN2_LOW, Math.fma(n, -LN2_HIGH, z));
    float p = 1 / 5040f;
    p = Math.fma(p, r, 1 / 720f);
    p = Math.fma(p, r, 1 / 120f);
    p = Math.fma(p, r, 1 / 24f);
    p = Math.fma(p, r, 1 / 6f);
    p = Math.fma(p, r, 0.5f);
    p = Math.fma(p, r, 1f);
    p = Math.fma(p, r, 1f);
    int exponent = Float.floatToRawIntBits(rounded) - Float.floatToRawIntBits(ROUNDER) + 127;
    return x < EXP_LOW ? 0 : p * Float.intBitsToFloat(exponent << 23);
  }

  /**
   * tanh(x) within 2 ulp; its Taylor polynomial of degree 19, which is 8e-9 off at {@link
   * #TANH_SMALL}, and 1 - 2 / (e^2x + 1) beyond.
   */
  static float tanh(float x) {
    float z = x * x;
    float p = TANH[0];
    for (int i = 1; i < TANH.length; i++) {
      p = Math.fma(p, z, TANH[i]);
    }
    float magnitude = Math.abs(x);
    float large = 1 - 2 / (exp(2 * magnitude) + 1);
    return magnitude < TANH_SMALL ? Math.fma(p * z, x, x) : Math.copySign(large, x);
  }
}
