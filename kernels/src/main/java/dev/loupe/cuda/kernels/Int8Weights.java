package dev.loupe.cuda.kernels;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * A weight matrix [outputs, in] in signed bytes: w = scale q, with one f32 scale for each group of
 * 64 along a row (the last one of a row perhaps shorter), q rounded to nearest, ties to even, and
 * scale = max |w| / 127. The error of a weight is at most half a scale.
 */
public final class Int8Weights {
  /** Weights under one scale. */
  public static final int GROUP = 64;

  private static final int MOST = 127; // -128 is not used: the range is symmetric

  private final byte[] values;
  private final float[] scales;
  private final int in;
  private final int outputs;

  private Int8Weights(byte[] values, float[] scales, int in, int outputs) {
    this.values = values;
    this.scales = scales;
    this.in = in;
    this.outputs = outputs;
  }

  /**
   * Quantises.
   *
   * @param w [outputs, in]
   * @throws IllegalArgumentException if the sizes do not match, or a weight is not finite
   */
  public static Int8Weights quantise(float[] w, int in, int outputs) {
    if (in < 1 || outputs < 1 || (long) in * outputs != w.length) {
      throw new IllegalArgumentException(
          "int8 weights: %d values for [%d, %d]".formatted(w.length, outputs, in));
    }
    int groups = Math.ceilDiv(in, GROUP);
    Int8Weights q =
        new Int8Weights(
            new byte[w.length], new float[Math.multiplyExact(outputs, groups)], in, outputs);
    for (int o = 0; o < outputs; o++) {
      for (int g = 0; g < groups; g++) {
        int from = o * in + g * GROUP;
        int to = o * in + Math.min(in, (g + 1) * GROUP);
        q.scales[o * groups + g] = q.quantiseGroup(w, from, to);
      }
    }
    return q;
  }

  private float quantiseGroup(float[] w, int from, int to) {
    float max = 0;
    for (int i = from; i < to; i++) {
      if (!Float.isFinite(w[i])) {
        throw new IllegalArgumentException(
            "int8 weights: weight [%d, %d] is %s".formatted(i / in, i % in, w[i]));
      }
      max = Math.max(max, Math.abs(w[i]));
    }
    float scale = max / MOST;
    if (scale == 0) {
      return 0; // all weights are 0, or too small for a scale
    }
    for (int i = from; i < to; i++) {
      // the scale of a group of subnormal weights is coarse
      values[i] = (byte) Math.clamp(Math.rint(w[i] / scale), -MOST, MOST);
    }
    return scale;
  }

  /** Columns of the matrix. */
  public int in() {
    return in;
  }

  /** Rows of the matrix. */
  public int outputs() {
    return outputs;
  }

  /** All q, [outputs, in]; not a copy. */
  public byte[] values() {
    return values;
  }

  /** All scales, [outputs, ceil(in / 64)]; not a copy. */
  public float[] scales() {
    return scales;
  }

  /** q of weight [output, k]. */
  public byte value(int output, int k) {
    return values[output * in + k];
  }

  /** Scale of weight [output, k]. */
  public float scale(int output, int k) {
    return scales[output * Math.ceilDiv(in, GROUP) + k / GROUP];
  }

  /** Puts the matrix on {@code gpu}; the caller closes the map's buffers. */
  public LinearMap upload(Gpu gpu, @Nullable DeviceBuffer bias) {
    DeviceBuffer weight = gpu.allocate(Element.I8, values.length);
    DeviceBuffer scale = null;
    try {
      weight.upload(MemorySegment.ofArray(values));
      scale = gpu.allocate(Element.F32, scales.length);
      scale.upload(scales);
      return new LinearMap(weight, scale, bias, in, outputs);
    } catch (RuntimeException e) {
      weight.close();
      if (scale != null) {
        scale.close();
      }
      throw e;
    }
  }
}
