package dev.loupe.ops.cpu;

import dev.loupe.weights.Activation;
import dev.loupe.weights.DType;
import java.lang.foreign.MemorySegment;
import java.nio.ByteOrder;
import jdk.incubator.vector.FloatVector;
import jdk.incubator.vector.IntVector;
import jdk.incubator.vector.ShortVector;
import jdk.incubator.vector.VectorMask;
import jdk.incubator.vector.VectorOperators;
import jdk.incubator.vector.VectorShape;
import jdk.incubator.vector.VectorSpecies;

/** The Vector API twin; whatever a vector does not fill, the scalar twin finishes. */
final class VectorLoops implements InnerLoops {
  /** The width in bits to use instead of the machine's preferred one: 128, 256 or 512. */
  static final String BITS_PROPERTY = "loupe.vectorBits";

  // Constants, because the compiler turns vector code into instructions only for a known species.
  private static final VectorSpecies<Float> F = species();
  private static final VectorSpecies<Integer> I = F.withLanes(int.class);
  private static final VectorSpecies<Short> S =
      VectorSpecies.of(short.class, VectorShape.forBitSize(F.vectorBitSize() / 2));
  private static final int W = F.length();
  private static final ByteOrder LE = ByteOrder.LITTLE_ENDIAN;
  private static final int ROUNDER_BITS = Float.floatToRawIntBits(ROUNDER);

  private final float[] lanes = new float[4 * LANES];

  private static VectorSpecies<Float> species() {
    int preferred = Math.clamp(FloatVector.SPECIES_PREFERRED.vectorBitSize(), 128, 512);
    int bits = Integer.getInteger(BITS_PROPERTY, preferred);
    if (bits != 128 && bits != 256 && bits != 512) {
      throw new IllegalArgumentException("vectors of %d bits: not 128, 256 or 512".formatted(bits));
    }
    return VectorSpecies.of(float.class, VectorShape.forBitSize(bits));
  }

  @Override
  public String toString() {
    return F.vectorBitSize() + "-bit vectors";
  }

  private static FloatVector load(MemorySegment s, long offset) {
    return FloatVector.fromMemorySegment(F, s, offset, LE);
  }

  @Override
  public int tileColumns() {
    return 2 * W;
  }

  @Override
  public void widen(
      DType dtype, MemorySegment src, long srcOffset, int n, MemorySegment dst, long dstOffset) {
    int whole = 0;
    if (dtype == DType.F16 || dtype == DType.BF16) {
      whole = n - n % W;
      for (int i = 0; i < whole; i += W) {
        ShortVector half = ShortVector.fromMemorySegment(S, src, srcOffset + 2L * i, LE);
        FloatVector wide = dtype == DType.F16 ? widenF16(half) : widenBf16(half);
        wide.intoMemorySegment(dst, dstOffset + 4L * i, LE);
      }
    }
    long rest = srcOffset + (long) dtype.bytes() * whole;
    ScalarLoops.widen(dtype, src, rest, n - whole, dst, dstOffset + 4L * whole, lanes);
  }

  private static FloatVector widenBf16(ShortVector half) {
    IntVector bits = (IntVector) half.convertShape(VectorOperators.ZERO_EXTEND_S2I, I, 0);
    return bits.lanewise(VectorOperators.LSHL, 16).reinterpretAsFloats();
  }

  /**
   * Moves exponent and fraction into an f32's places and multiplies by 2^112, the difference of the
   * exponent biases, which also normalises subnormals; infinities and NaN get the exponent of all
   * ones.
   */
  private static FloatVector widenF16(ShortVector half) {
    IntVector h = (IntVector) half.convertShape(VectorOperators.S2I, I, 0);
    IntVector magnitude = h.and(0x7fff).lanewise(VectorOperators.LSHL, 13);
    FloatVector scaled = magnitude.reinterpretAsFloats().mul(0x1p112f);
    VectorMask<Integer> special = magnitude.compare(VectorOperators.GE, 0x7c00 << 13);
    IntVector bits =
        scaled.reinterpretAsInts().blend(magnitude.or(0x7f800000), special).or(h.and(0x80000000));
    return bits.reinterpretAsFloats();
  }

  @Override
  public void addRows(
      MemorySegment x,
      long xOffset,
      int rows,
      MemorySegment w,
      long wOffset,
      long wStride,
      int n,
      float[] acc,
      int accOffset) {
    int whole = n - n % W;
    if (rows == STREAMS) {
      addEightRows(x, xOffset, w, wOffset, wStride, whole, acc, accOffset);
    } else {
      for (int k = 0; k < rows; k++) {
        float xk = x.get(ScalarLoops.F32, xOffset + 4L * k);
        for (int j = 0; j < whole; j += W) {
          FloatVector a = FloatVector.fromArray(F, acc, accOffset + j);
          FloatVector.broadcast(F, xk)
              .fma(load(w, wOffset + wStride * k + 4L * j), a)
              .intoArray(acc, accOffset + j);
        }
      }
    }
    ScalarLoops.addRows(x, xOffset, rows, w, wOffset, wStride, whole, n, acc, accOffset);
  }

  // Eight streams keep the memory's prefetchers busy; the sums wait in registers meanwhile.
  private static void addEightRows(
      MemorySegment x,
      long xOffset,
      MemorySegment w,
      long w0,
      long wStride,
      int n,
      float[] acc,
      int accOffset) {
    FloatVector x0 = FloatVector.broadcast(F, x.get(ScalarLoops.F32, xOffset));
    FloatVector x1 = FloatVector.broadcast(F, x.get(ScalarLoops.F32, xOffset + 4));
    FloatVector x2 = FloatVector.broadcast(F, x.get(ScalarLoops.F32, xOffset + 8));
    FloatVector x3 = FloatVector.broadcast(F, x.get(ScalarLoops.F32, xOffset + 12));
    FloatVector x4 = FloatVector.broadcast(F, x.get(ScalarLoops.F32, xOffset + 16));
    FloatVector x5 = FloatVector.broadcast(F, x.get(ScalarLoops.F32, xOffset + 20));
    FloatVector x6 = FloatVector.broadcast(F, x.get(ScalarLoops.F32, xOffset + 24));
    FloatVector x7 = FloatVector.broadcast(F, x.get(ScalarLoops.F32, xOffset + 28));
    long w1 = w0 + wStride;
    long w2 = w1 + wStride;
    long w3 = w2 + wStride;
    long w4 = w3 + wStride;
    long w5 = w4 + wStride;
    long w6 = w5 + wStride;
    long w7 = w6 + wStride;
    for (int j = 0; j < n; j += W) {
      long c = 4L * j;
      FloatVector a = x0.fma(load(w, w0 + c), FloatVector.fromArray(F, acc, accOffset + j));
      a = x1.fma(load(w, w1 + c), a);
      a = x2.fma(load(w, w2 + c), a);
      a = x3.fma(load(w, w3 + c), a);
      a = x4.fma(load(w, w4 + c), a);
      a = x5.fma(load(w, w5 + c), a);
      a = x6.fma(load(w, w6 + c), a);
      a = x7.fma(load(w, w7 + c), a);
      a.intoArray(acc, accOffset + j);
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
      float[] tile) {
    if (rows == TILE_ROWS) {
      multiplyFourRows(x, xOffset, xStride, inner, panel, tile);
      return;
    }
    for (int m = 0; m < rows; m++) {
      int t = m * 2 * W;
      FloatVector a = FloatVector.fromArray(F, tile, t);
      FloatVector b = FloatVector.fromArray(F, tile, t + W);
      for (int k = 0; k < inner; k++) {
        FloatVector xk =
            FloatVector.broadcast(F, x.get(ScalarLoops.F32, xOffset + xStride * m + 4L * k));
        a = xk.fma(load(panel, 8L * W * k), a);
        b = xk.fma(load(panel, 8L * W * k + 4L * W), b);
      }
      a.intoArray(tile, t);
      b.intoArray(tile, t + W);
    }
  }

  private static void multiplyFourRows(
      MemorySegment x, long x0, long xStride, int inner, MemorySegment panel, float[] tile) {
    FloatVector a0 = FloatVector.fromArray(F, tile, 0);
    FloatVector b0 = FloatVector.fromArray(F, tile, W);
    FloatVector a1 = FloatVector.fromArray(F, tile, 2 * W);
    FloatVector b1 = FloatVector.fromArray(F, tile, 3 * W);
    FloatVector a2 = FloatVector.fromArray(F, tile, 4 * W);
    FloatVector b2 = FloatVector.fromArray(F, tile, 5 * W);
    FloatVector a3 = FloatVector.fromArray(F, tile, 6 * W);
    FloatVector b3 = FloatVector.fromArray(F, tile, 7 * W);
    long x1 = x0 + xStride;
    long x2 = x1 + xStride;
    long x3 = x2 + xStride;
    for (int k = 0; k < inner; k++) {
      long c = 4L * k;
      FloatVector p = load(panel, 8L * W * k);
      FloatVector q = load(panel, 8L * W * k + 4L * W);
      FloatVector xk = FloatVector.broadcast(F, x.get(ScalarLoops.F32, x0 + c));
      a0 = xk.fma(p, a0);
      b0 = xk.fma(q, b0);
      xk = FloatVector.broadcast(F, x.get(ScalarLoops.F32, x1 + c));
      a1 = xk.fma(p, a1);
      b1 = xk.fma(q, b1);
      xk = FloatVector.broadcast(F, x.get(ScalarLoops.F32, x2 + c));
      a2 = xk.fma(p, a2);
      b2 = xk.fma(q, b2);
      xk = FloatVector.broadcast(F, x.get(ScalarLoops.F32, x3 + c));
      a3 = xk.fma(p, a3);
      b3 = xk.fma(q, b3);
    }
    a0.intoArray(tile, 0);
    b0.intoArray(tile, W);
    a1.intoArray(tile, 2 * W);
    b1.intoArray(tile, 3 * W);
    a2.intoArray(tile, 4 * W);
    b2.intoArray(tile, 5 * W);
    a3.intoArray(tile, 6 * W);
    b3.intoArray(tile, 7 * W);
  }

  // Vectors narrower than 16 lanes pass over the row once for each part of the lanes.
  @Override
  public void dotFour(
      MemorySegment x,
      long xOffset,
      MemorySegment w,
      long wOffset,
      long wStride,
      int n,
      float[] dots) {
    int whole = n - n % LANES;
    for (int part = 0; part < LANES; part += W) {
      FloatVector a0 = FloatVector.zero(F);
      FloatVector a1 = a0;
      FloatVector a2 = a0;
      FloatVector a3 = a0;
      for (int k = part; k < whole; k += LANES) {
        long c = wOffset + 4L * k;
        FloatVector xk = load(x, xOffset + 4L * k);
        a0 = xk.fma(load(w, c), a0);
        a1 = xk.fma(load(w, c + wStride), a1);
        a2 = xk.fma(load(w, c + 2 * wStride), a2);
        a3 = xk.fma(load(w, c + 3 * wStride), a3);
      }
      a0.intoArray(lanes, part);
      a1.intoArray(lanes, LANES + part);
      a2.intoArray(lanes, 2 * LANES + part);
      a3.intoArray(lanes, 3 * LANES + part);
    }
    for (int i = 0; i < 4; i++) {
      ScalarLoops.addProducts(x, xOffset, w, wOffset + wStride * i, whole, n, lanes, LANES * i);
      dots[i] = InnerLoops.fold(lanes, LANES * i);
    }
  }

  @Override
  public float sum(MemorySegment x, long xOffset, int n) {
    int whole = n - n % LANES;
    for (int part = 0; part < LANES; part += W) {
      FloatVector a = FloatVector.zero(F);
      for (int i = part; i < whole; i += LANES) {
        a = a.add(load(x, xOffset + 4L * i));
      }
      a.intoArray(lanes, part);
    }
    for (int i = whole; i < n; i++) {
      lanes[i % LANES] += x.get(ScalarLoops.F32, xOffset + 4L * i);
    }
    return InnerLoops.fold(lanes, 0);
  }

  @Override
  public float sumOfSquares(MemorySegment x, long xOffset, int n, float mean) {
    int whole = n - n % LANES;
    for (int part = 0; part < LANES; part += W) {
      FloatVector a = FloatVector.zero(F);
      for (int i = part; i < whole; i += LANES) {
        FloatVector d = load(x, xOffset + 4L * i).sub(mean);
        a = d.fma(d, a);
      }
      a.intoArray(lanes, part);
    }
    for (int i = whole; i < n; i++) {
      float d = x.get(ScalarLoops.F32, xOffset + 4L * i) - mean;
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
    int whole = n - n % W;
    for (int i = 0; i < whole; i += W) {
      load(x, xOffset + 4L * i)
          .sub(mean)
          .mul(factor)
          .fma(load(weight, 4L * i), load(bias, 4L * i))
          .intoMemorySegment(out, outOffset + 4L * i, LE);
    }
    ScalarLoops.normalise(x, xOffset, whole, n, mean, factor, weight, bias, out, outOffset);
  }

  @Override
  public void activate(Activation f, MemorySegment x, long xOffset, int n) {
    int whole = n - n % W;
    switch (f) {
      case GELU_NEW -> {
        for (int i = 0; i < whole; i += W) {
          FloatVector v = load(x, xOffset + 4L * i);
          FloatVector cubic = v.mul(ScalarLoops.GELU_CUBIC).mul(v).mul(v);
          timesSigmoid(v, cubic.add(v).mul(ScalarLoops.GELU_SCALE), x, xOffset + 4L * i);
        }
      }
      case SILU -> {
        for (int i = 0; i < whole; i += W) {
          FloatVector v = load(x, xOffset + 4L * i);
          timesSigmoid(v, v, x, xOffset + 4L * i);
        }
      }
      case QUICK_GELU -> {
        for (int i = 0; i < whole; i += W) {
          FloatVector v = load(x, xOffset + 4L * i);
          timesSigmoid(v, v.mul(1.702f), x, xOffset + 4L * i);
        }
      }
      case RELU -> {
        for (int i = 0; i < whole; i += W) {
          load(x, xOffset + 4L * i).max(0).intoMemorySegment(x, xOffset + 4L * i, LE);
        }
      }
      case GELU, TANH -> whole = 0; // rare in GPT-2 checkpoints
    }
    ScalarLoops.activate(f, x, xOffset, whole, n);
  }

  private static void timesSigmoid(FloatVector v, FloatVector z, MemorySegment x, long offset) {
    v.div(exp(z.neg()).add(1)).intoMemorySegment(x, offset, LE);
  }

  /** The steps of {@link ScalarLoops#exp}. */
  private static FloatVector exp(FloatVector x) {
    FloatVector z = x.max(EXP_LOW).min(EXP_HIGH);
    FloatVector rounder = FloatVector.broadcast(F, ROUNDER);
    FloatVector rounded = z.fma(FloatVector.broadcast(F, LOG2_E), rounder);
    FloatVector n = rounded.sub(rounder);
    FloatVector r = n.fma(FloatVector.broadcast(F, -LN2_HIGH), z);
    r = n.fma(FloatVector.broadcast(F, -LN2_LOW), r);
    FloatVector p = FloatVector.broadcast(F, 1 / 5040f);
    p = p.fma(r, FloatVector.broadcast(F, 1 / 720f));
    p = p.fma(r, FloatVector.broadcast(F, 1 / 120f));
    p = p.fma(r, FloatVector.broadcast(F, 1 / 24f));
    p = p.fma(r, FloatVector.broadcast(F, 1 / 6f));
    p = p.fma(r, FloatVector.broadcast(F, 0.5f));
    p = p.fma(r, FloatVector.broadcast(F, 1f));
    p = p.fma(r, FloatVector.broadcast(F, 1f));
    IntVector exponent = rounded.reinterpretAsInts().sub(ROUNDER_BITS).add(127);
    FloatVector scale = exponent.lanewise(VectorOperators.LSHL, 23).reinterpretAsFloats();
    return p.mul(scale).blend(0f, x.compare(VectorOperators.LT, EXP_LOW));
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
    for (int j = 0; j < KEYS; j += 4 * W) {
      long k0 = keysOffset + column(j, d);
      long k1 = keysOffset + column(j + W, d);
      long k2 = keysOffset + column(j + 2 * W, d);
      long k3 = keysOffset + column(j + 3 * W, d);
      FloatVector s0 = FloatVector.zero(F);
      FloatVector s1 = s0;
      FloatVector s2 = s0;
      FloatVector s3 = s0;
      for (int i = 0; i < d; i++) {
        FloatVector qi = FloatVector.broadcast(F, q.get(ScalarLoops.F32, qOffset + 4L * i));
        long c = 4L * LANES * i;
        s0 = qi.fma(load(keys, k0 + c), s0);
        s1 = qi.fma(load(keys, k1 + c), s1);
        s2 = qi.fma(load(keys, k2 + c), s2);
        s3 = qi.fma(load(keys, k3 + c), s3);
      }
      s0.mul(scale).intoArray(scores, j);
      s1.mul(scale).intoArray(scores, j + W);
      s2.mul(scale).intoArray(scores, j + 2 * W);
      s3.mul(scale).intoArray(scores, j + 3 * W);
    }
  }

  /** Where the first component of key {@code j} lies in a tile, in bytes. */
  private static long column(int j, int d) {
    return 4L * ((long) (j / LANES) * d * LANES + j % LANES);
  }

  @Override
  public float max(float[] x, int n) {
    int whole = n - n % W;
    FloatVector m = FloatVector.broadcast(F, Float.NEGATIVE_INFINITY);
    for (int j = 0; j < whole; j += W) {
      m = m.max(FloatVector.fromArray(F, x, j));
    }
    float max = m.reduceLanes(VectorOperators.MAX); // exact in any order
    for (int j = whole; j < n; j++) {
      max = Math.max(max, x[j]);
    }
    return max;
  }

  @Override
  public float exponentials(float[] x, int n, float shift) {
    for (int part = 0; part < LANES; part += W) {
      FloatVector a = FloatVector.zero(F);
      for (int j = part; j < KEYS; j += LANES) {
        FloatVector e = exp(FloatVector.fromArray(F, x, j).sub(shift));
        e = e.blend(0f, F.indexInRange(j, n).not());
        e.intoArray(x, j);
        a = a.add(e);
      }
      a.intoArray(lanes, part);
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
    int i = 0;
    for (; i + 4 * W <= d; i += 4 * W) {
      FloatVector a0 = FloatVector.fromArray(F, o, oOffset + i).mul(factor);
      FloatVector a1 = FloatVector.fromArray(F, o, oOffset + i + W).mul(factor);
      FloatVector a2 = FloatVector.fromArray(F, o, oOffset + i + 2 * W).mul(factor);
      FloatVector a3 = FloatVector.fromArray(F, o, oOffset + i + 3 * W).mul(factor);
      for (int j = 0; j < n; j++) {
        FloatVector pj = FloatVector.broadcast(F, p[j]);
        long c = vOffset + 4L * ((long) j * d + i);
        a0 = pj.fma(load(v, c), a0);
        a1 = pj.fma(load(v, c + 4L * W), a1);
        a2 = pj.fma(load(v, c + 8L * W), a2);
        a3 = pj.fma(load(v, c + 12L * W), a3);
      }
      a0.intoArray(o, oOffset + i);
      a1.intoArray(o, oOffset + i + W);
      a2.intoArray(o, oOffset + i + 2 * W);
      a3.intoArray(o, oOffset + i + 3 * W);
    }
    for (; i + W <= d; i += W) {
      FloatVector a = FloatVector.fromArray(F, o, oOffset + i).mul(factor);
      for (int j = 0; j < n; j++) {
        a = FloatVector.broadcast(F, p[j]).fma(load(v, vOffset + 4L * ((long) j * d + i)), a);
      }
      a.intoArray(o, oOffset + i);
    }
    ScalarLoops.addValues(p, n, v, vOffset, i, d, factor, o, oOffset);
  }
}
