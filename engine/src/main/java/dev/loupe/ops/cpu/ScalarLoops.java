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
  private final float[] part = new float[16]; // sums of a panel, or of a group of its inputs

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
      MemorySegment x, long xOffset, Panels w, int panel, int panels, float[] sums) {
    int columns = w.columns();
    int group = w.type() == Panels.Type.INT8 ? Panels.GROUP : w.in();
    for (int p = 0; p < panels; p++) {
      for (int first = 0; first < w.in(); first += group) {
        boolean scaled = w.type() == Panels.Type.INT8;
        if (scaled) {
          Arrays.fill(part, 0);
        } else {
          System.arraycopy(sums, p * columns, part, 0, columns);
        }
        for (int k = first; k < Math.min(w.in(), first + group); k++) {
          float xk = x.get(F32, xOffset + 4L * k);
          for (int j = 0; j < columns; j++) {
            part[j] = Math.fma(xk, element(w, panel + p, k * columns + j), part[j]);
          }
        }
        if (scaled) {
          long scales = w.scaleOffset(panel + p, first / group);
          InnerLoops.addScaled(part, 0, w.scales(), scales, 1, columns, sums, p * columns);
        } else {
          System.arraycopy(part, 0, sums, p * columns, columns);
        }
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
      MemorySegment panel,
      long panelOffset,
      float[] tile) {
    int columns = tileColumns();
    for (int m = 0; m < rows; m++) {
      for (int k = 0; k < inner; k++) {
        float xk = x.get(F32, xOffset + xStride * m + 4L * k);
        for (int j = 0; j < columns; j++) {
          int t = m * columns + j;
          long at = panelOffset + 4L * ((long) k * columns + j);
          tile[t] = Math.fma(xk, panel.get(F32, at), tile[t]);
        }
      }
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
  public void scoreKeys(
      MemorySegment q,
      long qOffset,
      int d,
      MemorySegment keys,
      long keysOffset,
      float scale,
      float[] scores) {
    for (int j = 0; j < KEYS; j++) {
      long column = keysOffset + 4L * ((long) (j / LANES) * d * LANES + j % LANES);
      float dot = 0;
      for (int i = 0; i < d; i++) {
        dot = Math.fma(q.get(F32, qOffset + 4L * i), keys.get(F32, column + 4L * i * LANES), dot);
      }
      scores[j] = dot * scale;
    }
  }

  @Override
  public float max(float[] x, int n) {
    float max = Float.NEGATIVE_INFINITY;
    for (int j = 0; j < n; j++) {
      max = Math.max(max, x[j]);
    }
    return max;
  }

  @Override
  public float exponentials(float[] x, int n, float shift) {
    Arrays.fill(lanes, 0);
    for (int j = 0; j < KEYS; j++) {
      x[j] = j < n ? exp(x[j] - shift) : 0;
      lanes[j % LANES] += x[j];
    }
    return InnerLoops.fold(lanes, 0);
  }

  @Override
  public void addValues(
      float[] p,
      int n,
      MemorySegment v,
      long vOffset,
      int d,
      float factor,
      float[] o,
      int oOffset) {
    addValues(p, n, v, vOffset, 0, d, factor, o, oOffset);
  }

  /** The components {@code from .. d - 1} of {@link #addValues}. */
  static void addValues(
      float[] p,
      int n,
      MemorySegment v,
      long vOffset,
      int from,
      int d,
      float factor,
      float[] o,
      int oOffset) {
    for (int i = from; i < d; i++) {
      float a = o[oOffset + i] * factor;
      for (int j = 0; j < n; j++) {
        a = Math.fma(p[j], v.get(F32, vOffset + 4L * ((long) j * d + i)), a);
      }
      o[oOffset + i] = a;
    }
  }
}
