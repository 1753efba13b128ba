package dev.loupe.ops.cpu;

import dev.loupe.weights.Activation;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.util.Arrays;

/** The plain twin, also the place to read what each loop means. */
final class ScalarLoops implements InnerLoops {
  static final ValueLayout.OfFloat F32 =
      ValueLayout.JAVA_FLOAT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

  static final ValueLayout.OfShort I16 =
      ValueLayout.JAVA_SHORT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

  private final float[] lanes = new float[LANES];

  @Override
  public InnerLoops another() {
    return new ScalarLoops();
  }

  @Override
  public int tileRows() {
    return 4;
  }

  @Override
  public int tileColumns() {
    return 16;
  }

  @Override
  public String toString() {
    return "no vectors";
  }

  @Override
  public void widen(Panels w, int panel, MemorySegment dst) {
    for (int i = 0; i < w.in() * w.columns(); i++) {
      dst.set(F32, 4L * i, element(w, panel, i));
    }
  }

  /** Element {@code i} of a panel, [in, columns], that of INT8 without its scale. */
  static float element(Panels w, int panel, int i) {
    long at = w.offset(panel);
    return switch (w.type()) {
      case F32 -> w.data().get(F32, at + 4L * i);
      case F16 -> Float.float16ToFloat(w.data().get(I16, at + 2L * w.place(i)));
      case BF16 -> Float.intBitsToFloat(w.data().get(I16, at + 2L * w.place(i)) << 16);
      case INT8 -> w.data().get(ValueLayout.JAVA_BYTE, at + i);
    };
  }

  @Override
  public void multiplyOne(
      MemorySegment x, long xOffset, Panels w, int panel, int panels, MemorySegment sums) {
    int columns = w.columns();
    boolean scaled = w.type() == Panels.Type.INT8;
    int group = scaled ? Panels.GROUP : w.in();
    for (int p = 0; p < panels; p++) {
      for (int j = 0; j < columns; j++) {
        long at = 4L * (p * columns + j);
        float sum = sums.get(F32, at);
        for (int first = 0; first < w.in(); first += group) {
          float part = scaled ? 0 : sum;
          for (int k = first; k < Math.min(w.in(), first + group); k++) {
            float xk = x.get(F32, xOffset + 4L * k);
            part = Math.fma(xk, element(w, panel + p, k * columns + j), part);
          }
          long scale = w.scaleOffset(panel + p, first / group) + 4L * j;
          sum = scaled ? Math.fma(part, w.scales().get(F32, scale), sum) : part;
        }
        sums.set(F32, at, sum);
      }
    }
  }

  @Override
  public void multiplyTile(
      MemorySegment x,
      long xOffset,
      long xStride,
      int rows,
      int inner,
      MemorySegment w,
      long left,
      long right,
      long stride,
      MemorySegment start,
      MemorySegment tile,
      long tileOffset,
      long tileStride) {
    int half = tileColumns() / 2;
    for (int m = 0; m < rows; m++) {
      long from = xOffset + xStride * m;
      for (int j = 0; j < tileColumns(); j++) {
        long column = j < half ? left + 4L * j : right + 4L * (j - half);
        float sum = multiply(x, from, inner, w, column, stride, start.get(F32, 4L * j));
        tile.set(F32, tileOffset + tileStride * m + 4L * j, sum);
      }
    }
  }

  /** sum + x[0] w[0] + x[1] w[1] + ..., one column of w. */
  static float multiply(
      MemorySegment x,
      long xOffset,
      int inner,
      MemorySegment w,
      long column,
      long stride,
      float sum) {
    float s = sum;
    for (int k = 0; k < inner; k++) {
      s = Math.fma(x.get(F32, xOffset + 4L * k), w.get(F32, column + stride * k), s);
    }
    return s;
  }

  @Override
  public void addScaled(
      MemorySegment from,
      long fromOffset,
      int rows,
      MemorySegment scales,
      long scalesOffset,
      MemorySegment to,
      long toOffset,
      long toStride) {
    for (int m = 0; m < rows; m++) {
      for (int j = 0; j < tileColumns(); j++) {
        long at = toOffset + toStride * m + 4L * j;
        float part = from.get(F32, fromOffset + 4L * (m * tileColumns() + j));
        to.set(F32, at, Math.fma(part, scales.get(F32, scalesOffset + 4L * j), to.get(F32, at)));
      }
    }
  }

  @Override
  public void scaleAdd(
      MemorySegment to, long toOffset, float factor, MemorySegment from, long fromOffset, int n) {
    scaleAdd(to, toOffset, factor, from, fromOffset, 0, n);
  }

  /** The elements {@code first .. n - 1} of {@link #scaleAdd}. */
  static void scaleAdd(
      MemorySegment to,
      long toOffset,
      float factor,
      MemorySegment from,
      long fromOffset,
      int first,
      int n) {
    for (int i = first; i < n; i++) {
      long at = toOffset + 4L * i;
      to.set(F32, at, Math.fma(to.get(F32, at), factor, from.get(F32, fromOffset + 4L * i)));
    }
  }

  @Override
  public void scale(MemorySegment x, long xOffset, int n, float factor, MemorySegment to, long at) {
    scale(x, xOffset, 0, n, factor, to, at);
  }

  /** The elements {@code first .. n - 1} of {@link #scale}. */
  static void scale(
      MemorySegment x, long xOffset, int first, int n, float factor, MemorySegment to, long at) {
    for (int i = first; i < n; i++) {
      to.set(F32, at + 4L * i, x.get(F32, xOffset + 4L * i) * factor);
    }
  }

  @Override
  public float sum(MemorySegment x, long xOffset, int n) {
    Arrays.fill(lanes, 0);
    for (int i = 0; i < n; i++) {
      lanes[i % LANES] += x.get(F32, xOffset + 4L * i);
    }
    return InnerLoops.fold(lanes, 0);
  }

  @Override
  public float sumOfSquares(MemorySegment x, long xOffset, int n, float mean) {
    Arrays.fill(lanes, 0);
    for (int i = 0; i < n; i++) {
      float d = x.get(F32, xOffset + 4L * i) - mean;
      lanes[i % LANES] = Math.fma(d, d, lanes[i % LANES]);
    }
    return InnerLoops.fold(lanes, 0);
  }

  @Override
  public void normalise(
      MemorySegment x,
      long xOffset,
      int n,
      float mean,
      float factor,
      MemorySegment weight,
      MemorySegment bias,
      MemorySegment out,
      long outOffset) {
    normalise(x, xOffset, 0, n, mean, factor, weight, bias, out, outOffset);
  }

  /** The elements {@code from .. n - 1} of {@link #normalise}. */
  static void normalise(
      MemorySegment x,
      long xOffset,
      int from,
      int n,
      float mean,
      float factor,
      MemorySegment weight,
      MemorySegment bias,
      MemorySegment out,
      long outOffset) {
    for (int i = from; i < n; i++) {
      float centred = (x.get(F32, xOffset + 4L * i) - mean) * factor;
      out.set(
          F32,
          outOffset + 4L * i,
          Math.fma(centred, weight.get(F32, 4L * i), bias.get(F32, 4L * i)));
    }
  }

  @Override
  public void activate(Activation f, MemorySegment x, long xOffset, int n) {
    activate(f, x, xOffset, 0, n);
  }

  /** The elements {@code from .. n - 1} of {@link #activate}. */
  static void activate(Activation f, MemorySegment x, long xOffset, int from, int n) {
    for (int i = from; i < n; i++) {
      x.set(F32, xOffset + 4L * i, activate(f, x.get(F32, xOffset + 4L * i)));
    }
  }

  static float activate(Activation f, float x) {
    return switch (f) {
      // 0.5 (1 + tanh(u)) = sigmoid(2u), which loses nothing where tanh(u) is near -1
      case GELU_NEW -> timesSigmoid(x, gelu2u(x));
      case GELU -> (float) (0.5 * x * (1 + Erf.of(x * Math.sqrt(0.5))));
      case RELU -> Math.max(x, 0);
      case SILU -> timesSigmoid(x, x);
      case TANH -> (float) StrictMath.tanh(x);
      case QUICK_GELU -> timesSigmoid(x, 1.702f * x);
    };
  }

  static final float GELU_CUBIC = 0.044715f;
  static final float GELU_SCALE = (float) (2 * Math.sqrt(2 / Math.PI));

  private static float gelu2u(float x) {
    return GELU_SCALE * (GELU_CUBIC * x * x * x + x);
  }

  private static float timesSigmoid(float x, float z) {
    return x / (1 + exp(-z));
  }

  /**
   * e^x within 2 ulp: 0 below {@link #EXP_LOW}, saturating above {@link #EXP_HIGH}, NaN for NaN. A
   * Taylor polynomial of degree 7 on |r| &lt;= ln 2 / 2 leaves a relative error of 5e-9.
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

  @Override
  public float scaleScores(MemorySegment scores, long offset, int n, float scale, float max) {
    hide(scores, offset, n);
    float most = max;
    for (int j = 0; j < KEYS; j++) {
      float x = scores.get(F32, offset + 4L * j) * scale;
      scores.set(F32, offset + 4L * j, x);
      most = x > most ? x : most;
    }
    return most;
  }

  /** Minus infinity for the keys from {@code n} on. */
  static void hide(MemorySegment scores, long offset, int n) {
    for (int j = n; j < KEYS; j++) {
      scores.set(F32, offset + 4L * j, Float.NEGATIVE_INFINITY);
    }
  }

  @Override
  public void exponentials(
      MemorySegment x, long offset, float shift, float factor, MemorySegment sums, long at) {
    for (int lane = 0; lane < LANES; lane++) {
      float sum = sums.get(F32, at + 4L * lane) * factor;
      for (int j = lane; j < KEYS; j += LANES) {
        float e = exp(x.get(F32, offset + 4L * j) - shift);
        x.set(F32, offset + 4L * j, e);
        sum += e;
      }
      sums.set(F32, at + 4L * lane, sum);
    }
  }
}
