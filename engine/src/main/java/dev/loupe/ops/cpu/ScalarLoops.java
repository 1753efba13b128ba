package dev.loupe.ops.cpu;

import dev.loupe.ops.Precision;
import dev.loupe.weights.config.Activation;
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

  private static final int COLUMNS = 16;

  private final float[] lanes = new float[LANES];
  private final float[] weights = new float[COLUMNS]; // one input's, of one panel
  private final float[] sums = new float[COLUMNS]; // one row's, of one panel

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
    return COLUMNS;
  }

  @Override
  public String toString() {
    return "plain loops";
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

  /** The weights of input {@code k}. */
  private void read(Panels w, int panel, int k) {
    if (w.type() == Precision.F32) {
      MemorySegment.copy(w.data(), F32, w.offset(panel) + 4L * k * COLUMNS, weights, 0, COLUMNS);
      return;
    }
    for (int j = 0; j < COLUMNS; j++) {
      weights[j] = element(w, panel, k * COLUMNS + j);
    }
  }

  /** sums += xk * weights. The compiler makes vectors of this loop, whatever the machine has. */
  private void addWeights(float xk) {
    for (int j = 0; j < sums.length; j++) {
      sums[j] = Math.fma(xk, weights[j], sums[j]);
    }
  }

  @Override
  public void multiplyOne(
      MemorySegment x,
      long xOffset,
      Panels w,
      int panel,
      int panels,
      int first,
      int n,
      MemorySegment out,
      long at) {
    boolean scaled = w.type() == Precision.INT8;
    int group = scaled ? Panels.GROUP : n;
    for (int p = 0; p < panels; p++) {
      long to = at + 4L * p * COLUMNS;
      for (int i = 0; i < n; i += group) {
        if (scaled) {
          Arrays.fill(sums, 0);
        } else {
          MemorySegment.copy(out, F32, to, sums, 0, COLUMNS);
        }
        for (int k = i; k < Math.min(n, i + group); k++) {
          read(w, panel + p, first + k);
          addWeights(x.get(F32, xOffset + 4L * k));
        }
        if (scaled) {
          long scales = w.scaleOffset(panel + p, (first + i) / group);
          addScaled(sums, w.scales(), scales, out, to);
        } else {
          MemorySegment.copy(sums, 0, out, F32, to, COLUMNS);
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
      MemorySegment w,
      long left,
      long right,
      long stride,
      MemorySegment start,
      MemorySegment tile,
      long tileOffset,
      long tileStride) {
    int half = COLUMNS / 2;
    for (int m = 0; m < rows; m++) {
      MemorySegment.copy(start, F32, 0, sums, 0, COLUMNS);
      for (int k = 0; k < inner; k++) {
        MemorySegment.copy(w, F32, left + stride * k, weights, 0, half);
        MemorySegment.copy(w, F32, right + stride * k, weights, half, half);
        addWeights(x.get(F32, xOffset + xStride * m + 4L * k));
      }
      MemorySegment.copy(sums, 0, tile, F32, tileOffset + tileStride * m, COLUMNS);
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
      MemorySegment.copy(from, F32, fromOffset + 4L * m * COLUMNS, sums, 0, COLUMNS);
      addScaled(sums, scales, scalesOffset, to, toOffset + toStride * m);
    }
  }

  private static void addScaled(
      float[] from, MemorySegment scales, long scalesOffset, MemorySegment to, long at) {
    for (int j = 0; j < from.length; j++) {
      float scale = scales.get(F32, scalesOffset + 4L * j);
      to.set(F32, at + 4L * j, Math.fma(from[j], scale, to.get(F32, at + 4L * j)));
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
      x.set(F32, xOffset + 4L * i, ScalarFunctions.activate(f, x.get(F32, xOffset + 4L * i)));
    }
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
        float e = ScalarFunctions.exp(x.get(F32, offset + 4L * j) - shift);
        x.set(F32, offset + 4L * j, e);
        sum += e;
      }
      sums.set(F32, at + 4L * lane, sum);
    }
  }

  @Override
  public float spread(
      MemorySegment x, long offset, float logSum, int distance, MemorySegment sums, long at) {
    float most = 0;
    for (int lane = 0; lane < LANES; lane++) {
      float entropy = sums.get(F32, at + 4L * lane);
      float mean = sums.get(F32, at + 4L * (LANES + lane));
      for (int j = lane; j < KEYS; j += LANES) {
        float z = x.get(F32, offset + 4L * j) - logSum;
        float p = ScalarFunctions.exp(z);
        x.set(F32, offset + 4L * j, p);
        entropy = Math.fma(p, Math.max(z, EXP_LOW), entropy); // 0 ln 0 = 0
        mean = Math.fma(p, Math.abs((float) (distance - j)), mean);
        most = p > most ? p : most;
      }
      sums.set(F32, at + 4L * lane, entropy);
      sums.set(F32, at + 4L * (LANES + lane), mean);
    }
    return most;
  }
}
