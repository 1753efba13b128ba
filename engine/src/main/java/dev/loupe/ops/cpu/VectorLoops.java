package dev.loupe.ops.cpu;

import dev.loupe.ops.Precision;
import dev.loupe.weights.config.Activation;
import java.io.IOException;
import java.io.InputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.nio.ByteOrder;
import java.util.Objects;
import jdk.incubator.vector.ByteVector;
import jdk.incubator.vector.FloatVector;
import jdk.incubator.vector.IntVector;
import jdk.incubator.vector.VectorOperators;
import jdk.incubator.vector.VectorShape;
import jdk.incubator.vector.VectorSpecies;

/** The Vector API twin; whatever a vector does not fill, the scalar twin finishes. */
final class VectorLoops implements InnerLoops {
  // Constants, because the compiler turns vector code into instructions only for a known species.
  private static final VectorSpecies<Float> F = species();
  private static final VectorSpecies<Integer> I = F.withLanes(int.class);
  private static final VectorSpecies<Byte> B =
      VectorSpecies.of(byte.class, VectorShape.forBitSize(Math.max(64, F.vectorBitSize() / 4)));
  private static final int W = F.length();
  // AVX-512 has 32 registers, narrower vectors have 16: sums, two of a panel, one of x
  private static final int TILE_ROWS = W == 16 ? 8 : 4;

  /** What arenas allocate. */
  private static final Class<?> NATIVE = MemorySegment.NULL.getClass();

  private static final ByteOrder LE = ByteOrder.LITTLE_ENDIAN;
  private static final int ROUNDER_BITS = Float.floatToRawIntBits(ROUNDER);

  private static final int F16_TURN = 64; // inputs; of 16 and 256 it was 5% and 60% slower

  private final float[] lanes = new float[LANES];
  // sums of a group of inputs
  private final MemorySegment part = Arena.ofAuto().allocate(8L * W * STREAMS, 64);

  private static VectorSpecies<Float> species() {
    int bits = preferredBits();
    try { // a copy of the class brings its width along
      Integer other = MethodHandles.classData(MethodHandles.lookup(), "_", Integer.class);
      bits = other == null ? bits : other;
    } catch (IllegalAccessException e) {
      throw new AssertionError("a class may ask for its own data", e);
    }
    return VectorSpecies.of(float.class, VectorShape.forBitSize(bits));
  }

  private static int preferredBits() {
    return Math.clamp(FloatVector.SPECIES_PREFERRED.vectorBitSize(), 128, 512);
  }

  /**
   * Loops on vectors of so many bits. The width is a constant of the class, so that each but the
   * preferred one is a copy of the class.
   *
   * @param bits 128, 256 or 512; 0 for what Java prefers on this processor
   */
  static InnerLoops ofWidth(int bits) {
    if (bits == 0 || bits == preferredBits()) {
      return new VectorLoops();
    }
    try (InputStream in = VectorLoops.class.getResourceAsStream("VectorLoops.class")) {
      byte[] code = Objects.requireNonNull(in, "the class's own file").readAllBytes();
      MethodHandles.Lookup copy =
          MethodHandles.lookup().defineHiddenClassWithClassData(code, bits, true);
      return (InnerLoops) copy.lookupClass().getDeclaredConstructor().newInstance();
    } catch (IOException | ReflectiveOperationException e) {
      throw new IllegalStateException("vectors of %d bits".formatted(bits), e);
    }
  }

  @Override
  public String toString() {
    return F.vectorBitSize() + "-bit vectors";
  }

  /**
   * The same segment, of which the compiler then knows that it is no Java array. It would have to
   * go by what the JDK's own code has seen in this process, arrays among it, and make loads that
   * could be either; these took 14 ms for attention that takes 4.5. Called at the start of each
   * method whose loops load: once for every load was too much code to be compiled whole (9 ms).
   */
  private static MemorySegment known(MemorySegment s) {
    return s.getClass() == NATIVE ? s : other(s);
  }

  /** Of which nothing is known: a branch that does something else, or there would be none. */
  private static MemorySegment other(MemorySegment s) {
    return s;
  }

  private static FloatVector load(MemorySegment s, long offset) {
    return FloatVector.fromMemorySegment(F, s, offset, LE);
  }

  @Override
  public InnerLoops another() {
    return new VectorLoops();
  }

  @Override
  public int tileRows() {
    return TILE_ROWS;
  }

  @Override
  public int tileColumns() {
    return 2 * W;
  }

  @Override
  public void widen(Panels w, int panel, MemorySegment dst) {
    dst = known(dst);
    int n = w.in() * w.columns();
    long from = w.offset(panel);
    switch (w.type()) {
      case F32 -> MemorySegment.copy(w.data(), from, dst, 0, 4L * n);
      case F16 -> {
        for (int i = 0; i < n; i += 2 * W) {
          IntVector pairs = pairs(w.data(), from + 2L * i);
          lowF16(pairs).intoMemorySegment(dst, 4L * i, LE);
          highF16(pairs).intoMemorySegment(dst, 4L * (i + W), LE);
        }
      }
      case BF16 -> {
        for (int i = 0; i < n; i += 2 * W) {
          IntVector pairs = pairs(w.data(), from + 2L * i);
          lowBf16(pairs).intoMemorySegment(dst, 4L * i, LE);
          highBf16(pairs).intoMemorySegment(dst, 4L * (i + W), LE);
        }
      }
      case INT8 -> {
        for (int i = 0; i < n; i += W) {
          loadByte(w.data(), from + i).intoMemorySegment(dst, 4L * i, LE);
        }
      }
    }
  }

  private static IntVector pairs(MemorySegment s, long offset) {
    return IntVector.fromMemorySegment(I, s, offset, LE);
  }

  private static FloatVector lowBf16(IntVector pairs) {
    return pairs.lanewise(VectorOperators.LSHL, 16).reinterpretAsFloats();
  }

  private static FloatVector highBf16(IntVector pairs) {
    return pairs.and(0xffff0000).reinterpretAsFloats();
  }

  // An f16 at the top of a lane, shifted right by three places with its sign, has its exponent and
  // fraction where an f32 has them; without the copies of the sign it is 2^-112 times the number,
  // for that is the difference of the exponents' biases. Subnormals come right too; infinities and
  // NaN are not packed.

  private static FloatVector lowF16Scaled(IntVector pairs) {
    return highF16Scaled(pairs.lanewise(VectorOperators.LSHL, 16));
  }

  private static FloatVector highF16Scaled(IntVector pairs) {
    return pairs.lanewise(VectorOperators.ASHR, 3).and(0x8fffe000).reinterpretAsFloats();
  }

  private static FloatVector lowF16(IntVector pairs) {
    return lowF16Scaled(pairs).mul(0x1p112f);
  }

  private static FloatVector highF16(IntVector pairs) {
    return highF16Scaled(pairs).mul(0x1p112f);
  }

  /** Whether all of x may be multiplied by 2^112. */
  private static boolean scales(MemorySegment x, long xOffset, int n) {
    int whole = n - n % W;
    FloatVector largest = FloatVector.zero(F);
    for (int i = 0; i < whole; i += W) {
      largest = largest.max(load(x, xOffset + 4L * i).abs());
    }
    float all = largest.reduceLanes(VectorOperators.MAX); // exact in any order
    for (int i = whole; i < n; i++) {
      all = Math.max(all, Math.abs(x.get(ScalarLoops.F32, xOffset + 4L * i)));
    }
    return all < 0x1p15f; // not so for NaN
  }

  private static FloatVector loadByte(MemorySegment s, long offset) {
    return (FloatVector)
        ByteVector.fromMemorySegment(B, s, offset, LE).convertShape(VectorOperators.B2F, F, 0);
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
      MemorySegment sums,
      long at) {
    x = known(x);
    sums = known(sums);
    int p = 0;
    if (panels == STREAMS && (w.type() != Precision.F16 || scales(x, xOffset, n))) {
      multiplyFour(x, xOffset, w, panel, first, n, sums, at);
      p = STREAMS;
    }
    for (; p < panels; p++) {
      multiplyPanel(x, xOffset, w, panel + p, first, n, sums, at + 8L * W * p);
    }
  }

  private void multiplyFour(
      MemorySegment x,
      long xOffset,
      Panels w,
      int panel,
      int first,
      int n,
      MemorySegment sums,
      long at) {
    x = known(x);
    sums = known(sums);
    MemorySegment data = w.data();
    long start = w.offset(panel, first);
    long stride = w.panelBytes();
    switch (w.type()) {
      case F32 -> fourF32(x, xOffset, n, data, start, stride, sums, at);
      case BF16 -> fourBf16(x, xOffset, n, data, start, stride, sums, at);
      case F16 -> {
        // four at once are too much for the compiler, and two streams too few for memory: in turns
        for (int i = 0; i < n; i += F16_TURN) {
          int some = Math.min(F16_TURN, n - i);
          long from = start + 4L * W * i;
          twoF16(x, xOffset + 4L * i, some, data, from, stride, sums, at);
          twoF16(x, xOffset + 4L * i, some, data, from + 2 * stride, stride, sums, at + 16L * W);
        }
      }
      case INT8 -> {
        for (int i = 0; i < n; i += Panels.GROUP) {
          int some = Math.min(Panels.GROUP, n - i);
          part.fill((byte) 0);
          fourInt8(x, xOffset + 4L * i, some, data, start + 2L * W * i, stride, part, 0);
          for (int p = 0; p < STREAMS; p++) {
            long scales = w.scaleOffset(panel + p, (first + i) / Panels.GROUP);
            addScaled(part, 8L * W * p, 1, w.scales(), scales, sums, at + 8L * W * p, 0);
          }
        }
      }
    }
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
    from = known(from);
    scales = known(scales);
    to = known(to);
    FloatVector p = load(scales, scalesOffset);
    FloatVector q = load(scales, scalesOffset + 4L * W);
    for (int m = 0; m < rows; m++) {
      long at = fromOffset + 8L * W * m;
      long sum = toOffset + toStride * m;
      load(from, at).fma(p, load(to, sum)).intoMemorySegment(to, sum, LE);
      load(from, at + 4L * W)
          .fma(q, load(to, sum + 4L * W))
          .intoMemorySegment(to, sum + 4L * W, LE);
    }
  }

  private void multiplyPanel(
      MemorySegment x,
      long xOffset,
      Panels w,
      int panel,
      int first,
      int n,
      MemorySegment sums,
      long at) {
    x = known(x);
    sums = known(sums);
    MemorySegment data = w.data();
    long start = w.offset(panel, first);
    switch (w.type()) {
      case F32 -> oneF32(x, xOffset, n, data, start, sums, at);
      case BF16 -> oneBf16(x, xOffset, n, data, start, sums, at);
      case F16 -> oneF16(x, xOffset, n, data, start, sums, at);
      case INT8 -> {
        for (int i = 0; i < n; i += Panels.GROUP) {
          int some = Math.min(Panels.GROUP, n - i);
          part.fill((byte) 0);
          oneInt8(x, xOffset + 4L * i, some, data, start + 2L * W * i, part, 0);
          long scales = w.scaleOffset(panel, (first + i) / Panels.GROUP);
          addScaled(part, 0, 1, w.scales(), scales, sums, at, 0);
        }
      }
    }
  }

  // One method for each type and number of streams: the compiler keeps sums in registers where
  // every one has a name and the loop is small enough to be compiled whole.

  private static void fourF32(
      MemorySegment x,
      long xOffset,
      int inner,
      MemorySegment w,
      long start,
      long stride,
      MemorySegment sums,
      long at) {
    x = known(x);
    w = known(w);
    sums = known(sums);
    FloatVector s0 = load(sums, at);
    FloatVector s1 = load(sums, at + 4L * W);
    FloatVector s2 = load(sums, at + 8L * W);
    FloatVector s3 = load(sums, at + 12L * W);
    FloatVector s4 = load(sums, at + 16L * W);
    FloatVector s5 = load(sums, at + 20L * W);
    FloatVector s6 = load(sums, at + 24L * W);
    FloatVector s7 = load(sums, at + 28L * W);
    long p0 = start;
    long p1 = start + stride;
    long p2 = start + 2 * stride;
    long p3 = start + 3 * stride;
    for (int k = 0; k < inner; k++) {
      FloatVector xk = FloatVector.broadcast(F, x.get(ScalarLoops.F32, xOffset + 4L * k));
      long o = 8L * W * k;
      s0 = xk.fma(load(w, p0 + o), s0);
      s1 = xk.fma(load(w, p0 + o + 4L * W), s1);
      s2 = xk.fma(load(w, p1 + o), s2);
      s3 = xk.fma(load(w, p1 + o + 4L * W), s3);
      s4 = xk.fma(load(w, p2 + o), s4);
      s5 = xk.fma(load(w, p2 + o + 4L * W), s5);
      s6 = xk.fma(load(w, p3 + o), s6);
      s7 = xk.fma(load(w, p3 + o + 4L * W), s7);
    }
    s0.intoMemorySegment(sums, at, LE);
    s1.intoMemorySegment(sums, at + 4L * W, LE);
    s2.intoMemorySegment(sums, at + 8L * W, LE);
    s3.intoMemorySegment(sums, at + 12L * W, LE);
    s4.intoMemorySegment(sums, at + 16L * W, LE);
    s5.intoMemorySegment(sums, at + 20L * W, LE);
    s6.intoMemorySegment(sums, at + 24L * W, LE);
    s7.intoMemorySegment(sums, at + 28L * W, LE);
  }

  private static void oneF32(
      MemorySegment x,
      long xOffset,
      int inner,
      MemorySegment w,
      long start,
      MemorySegment sums,
      long at) {
    x = known(x);
    w = known(w);
    sums = known(sums);
    FloatVector s0 = load(sums, at);
    FloatVector s1 = load(sums, at + 4L * W);
    long p0 = start;
    for (int k = 0; k < inner; k++) {
      FloatVector xk = FloatVector.broadcast(F, x.get(ScalarLoops.F32, xOffset + 4L * k));
      long o = 8L * W * k;
      s0 = xk.fma(load(w, p0 + o), s0);
      s1 = xk.fma(load(w, p0 + o + 4L * W), s1);
    }
    s0.intoMemorySegment(sums, at, LE);
    s1.intoMemorySegment(sums, at + 4L * W, LE);
  }

  private static void fourBf16(
      MemorySegment x,
      long xOffset,
      int inner,
      MemorySegment w,
      long start,
      long stride,
      MemorySegment sums,
      long at) {
    x = known(x);
    w = known(w);
    sums = known(sums);
    FloatVector s0 = load(sums, at);
    FloatVector s1 = load(sums, at + 4L * W);
    FloatVector s2 = load(sums, at + 8L * W);
    FloatVector s3 = load(sums, at + 12L * W);
    FloatVector s4 = load(sums, at + 16L * W);
    FloatVector s5 = load(sums, at + 20L * W);
    FloatVector s6 = load(sums, at + 24L * W);
    FloatVector s7 = load(sums, at + 28L * W);
    long p0 = start;
    long p1 = start + stride;
    long p2 = start + 2 * stride;
    long p3 = start + 3 * stride;
    for (int k = 0; k < inner; k++) {
      FloatVector xk = FloatVector.broadcast(F, x.get(ScalarLoops.F32, xOffset + 4L * k));
      long o = 4L * W * k;
      IntVector v = pairs(w, p0 + o);
      s0 = xk.fma(lowBf16(v), s0);
      s1 = xk.fma(highBf16(v), s1);
      v = pairs(w, p1 + o);
      s2 = xk.fma(lowBf16(v), s2);
      s3 = xk.fma(highBf16(v), s3);
      v = pairs(w, p2 + o);
      s4 = xk.fma(lowBf16(v), s4);
      s5 = xk.fma(highBf16(v), s5);
      v = pairs(w, p3 + o);
      s6 = xk.fma(lowBf16(v), s6);
      s7 = xk.fma(highBf16(v), s7);
    }
    s0.intoMemorySegment(sums, at, LE);
    s1.intoMemorySegment(sums, at + 4L * W, LE);
    s2.intoMemorySegment(sums, at + 8L * W, LE);
    s3.intoMemorySegment(sums, at + 12L * W, LE);
    s4.intoMemorySegment(sums, at + 16L * W, LE);
    s5.intoMemorySegment(sums, at + 20L * W, LE);
    s6.intoMemorySegment(sums, at + 24L * W, LE);
    s7.intoMemorySegment(sums, at + 28L * W, LE);
  }

  private static void oneBf16(
      MemorySegment x,
      long xOffset,
      int inner,
      MemorySegment w,
      long start,
      MemorySegment sums,
      long at) {
    x = known(x);
    w = known(w);
    sums = known(sums);
    FloatVector s0 = load(sums, at);
    FloatVector s1 = load(sums, at + 4L * W);
    long p0 = start;
    for (int k = 0; k < inner; k++) {
      FloatVector xk = FloatVector.broadcast(F, x.get(ScalarLoops.F32, xOffset + 4L * k));
      long o = 4L * W * k;
      IntVector v = pairs(w, p0 + o);
      s0 = xk.fma(lowBf16(v), s0);
      s1 = xk.fma(highBf16(v), s1);
    }
    s0.intoMemorySegment(sums, at, LE);
    s1.intoMemorySegment(sums, at + 4L * W, LE);
  }

  private static void twoF16(
      MemorySegment x,
      long xOffset,
      int inner,
      MemorySegment w,
      long start,
      long stride,
      MemorySegment sums,
      long at) {
    x = known(x);
    w = known(w);
    sums = known(sums);
    FloatVector s0 = load(sums, at);
    FloatVector s1 = load(sums, at + 4L * W);
    FloatVector s2 = load(sums, at + 8L * W);
    FloatVector s3 = load(sums, at + 12L * W);
    long p0 = start;
    long p1 = start + stride;
    for (int k = 0; k < inner; k++) {
      FloatVector xk =
          FloatVector.broadcast(F, 0x1p112f * x.get(ScalarLoops.F32, xOffset + 4L * k));
      long o = 4L * W * k;
      IntVector v = pairs(w, p0 + o);
      s0 = xk.fma(lowF16Scaled(v), s0);
      s1 = xk.fma(highF16Scaled(v), s1);
      v = pairs(w, p1 + o);
      s2 = xk.fma(lowF16Scaled(v), s2);
      s3 = xk.fma(highF16Scaled(v), s3);
    }
    s0.intoMemorySegment(sums, at, LE);
    s1.intoMemorySegment(sums, at + 4L * W, LE);
    s2.intoMemorySegment(sums, at + 8L * W, LE);
    s3.intoMemorySegment(sums, at + 12L * W, LE);
  }

  private static void oneF16(
      MemorySegment x,
      long xOffset,
      int inner,
      MemorySegment w,
      long start,
      MemorySegment sums,
      long at) {
    x = known(x);
    w = known(w);
    sums = known(sums);
    FloatVector s0 = load(sums, at);
    FloatVector s1 = load(sums, at + 4L * W);
    long p0 = start;
    for (int k = 0; k < inner; k++) {
      FloatVector xk = FloatVector.broadcast(F, x.get(ScalarLoops.F32, xOffset + 4L * k));
      long o = 4L * W * k;
      IntVector v = pairs(w, p0 + o);
      s0 = xk.fma(lowF16(v), s0);
      s1 = xk.fma(highF16(v), s1);
    }
    s0.intoMemorySegment(sums, at, LE);
    s1.intoMemorySegment(sums, at + 4L * W, LE);
  }

  private static void fourInt8(
      MemorySegment x,
      long xOffset,
      int inner,
      MemorySegment w,
      long start,
      long stride,
      MemorySegment sums,
      long at) {
    x = known(x);
    w = known(w);
    sums = known(sums);
    FloatVector s0 = load(sums, at);
    FloatVector s1 = load(sums, at + 4L * W);
    FloatVector s2 = load(sums, at + 8L * W);
    FloatVector s3 = load(sums, at + 12L * W);
    FloatVector s4 = load(sums, at + 16L * W);
    FloatVector s5 = load(sums, at + 20L * W);
    FloatVector s6 = load(sums, at + 24L * W);
    FloatVector s7 = load(sums, at + 28L * W);
    long p0 = start;
    long p1 = start + stride;
    long p2 = start + 2 * stride;
    long p3 = start + 3 * stride;
    for (int k = 0; k < inner; k++) {
      FloatVector xk = FloatVector.broadcast(F, x.get(ScalarLoops.F32, xOffset + 4L * k));
      long o = 2L * W * k;
      s0 = xk.fma(loadByte(w, p0 + o), s0);
      s1 = xk.fma(loadByte(w, p0 + o + W), s1);
      s2 = xk.fma(loadByte(w, p1 + o), s2);
      s3 = xk.fma(loadByte(w, p1 + o + W), s3);
      s4 = xk.fma(loadByte(w, p2 + o), s4);
      s5 = xk.fma(loadByte(w, p2 + o + W), s5);
      s6 = xk.fma(loadByte(w, p3 + o), s6);
      s7 = xk.fma(loadByte(w, p3 + o + W), s7);
    }
    s0.intoMemorySegment(sums, at, LE);
    s1.intoMemorySegment(sums, at + 4L * W, LE);
    s2.intoMemorySegment(sums, at + 8L * W, LE);
    s3.intoMemorySegment(sums, at + 12L * W, LE);
    s4.intoMemorySegment(sums, at + 16L * W, LE);
    s5.intoMemorySegment(sums, at + 20L * W, LE);
    s6.intoMemorySegment(sums, at + 24L * W, LE);
    s7.intoMemorySegment(sums, at + 28L * W, LE);
  }

  private static void oneInt8(
      MemorySegment x,
      long xOffset,
      int inner,
      MemorySegment w,
      long start,
      MemorySegment sums,
      long at) {
    x = known(x);
    w = known(w);
    sums = known(sums);
    FloatVector s0 = load(sums, at);
    FloatVector s1 = load(sums, at + 4L * W);
    long p0 = start;
    for (int k = 0; k < inner; k++) {
      FloatVector xk = FloatVector.broadcast(F, x.get(ScalarLoops.F32, xOffset + 4L * k));
      long o = 2L * W * k;
      s0 = xk.fma(loadByte(w, p0 + o), s0);
      s1 = xk.fma(loadByte(w, p0 + o + W), s1);
    }
    s0.intoMemorySegment(sums, at, LE);
    s1.intoMemorySegment(sums, at + 4L * W, LE);
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
    x = known(x);
    w = known(w);
    start = known(start);
    tile = known(tile);
    if (rows == 8) {
      eightRows(
          x, xOffset, xStride, inner, w, left, right, stride, start, tile, tileOffset, tileStride);
      return;
    }
    if (rows == 1) {
      oneRow(x, xOffset, inner, w, left, right, stride, start, tile, tileOffset);
      return;
    }
    // What is left of a group is computed with rows before it, again: sums of several rows take
    // hardly longer than those of one, which wait for each other.
    for (int m = 0; m < rows; ) {
      boolean four = rows >= 4 && rows - m > 2;
      int first = Math.min(m, rows - (four ? 4 : 2));
      long from = xOffset + xStride * first;
      long to = tileOffset + tileStride * first;
      if (four) {
        fourRows(x, from, xStride, inner, w, left, right, stride, start, tile, to, tileStride);
      } else {
        twoRows(x, from, xStride, inner, w, left, right, stride, start, tile, to, tileStride);
      }
      m = first + (four ? 4 : 2);
    }
  }

  private static void oneRow(
      MemorySegment x,
      long xOffset,
      int inner,
      MemorySegment w,
      long left,
      long right,
      long stride,
      MemorySegment start,
      MemorySegment tile,
      long to) {
    x = known(x);
    w = known(w);
    start = known(start);
    tile = known(tile);
    FloatVector a = load(start, 0);
    FloatVector b = load(start, 4L * W);
    for (int k = 0; k < inner; k++) {
      FloatVector xk = FloatVector.broadcast(F, x.get(ScalarLoops.F32, xOffset + 4L * k));
      a = xk.fma(load(w, left + stride * k), a);
      b = xk.fma(load(w, right + stride * k), b);
    }
    a.intoMemorySegment(tile, to, LE);
    b.intoMemorySegment(tile, to + 4L * W, LE);
  }

  private static void twoRows(
      MemorySegment x,
      long x0,
      long xStride,
      int inner,
      MemorySegment w,
      long left,
      long right,
      long stride,
      MemorySegment start,
      MemorySegment tile,
      long t0,
      long tStride) {
    x = known(x);
    w = known(w);
    start = known(start);
    tile = known(tile);
    long x1 = x0 + xStride;
    FloatVector a0 = load(start, 0);
    FloatVector b0 = load(start, 4L * W);
    FloatVector a1 = load(start, 0);
    FloatVector b1 = load(start, 4L * W);
    for (int k = 0; k < inner; k++) {
      FloatVector p = load(w, left + stride * k);
      FloatVector q = load(w, right + stride * k);
      long c = 4L * k;
      FloatVector xk = FloatVector.broadcast(F, x.get(ScalarLoops.F32, x0 + c));
      a0 = xk.fma(p, a0);
      b0 = xk.fma(q, b0);
      xk = FloatVector.broadcast(F, x.get(ScalarLoops.F32, x1 + c));
      a1 = xk.fma(p, a1);
      b1 = xk.fma(q, b1);
    }
    a0.intoMemorySegment(tile, t0, LE);
    b0.intoMemorySegment(tile, t0 + 4L * W, LE);
    a1.intoMemorySegment(tile, t0 + tStride, LE);
    b1.intoMemorySegment(tile, t0 + tStride + 4L * W, LE);
  }

  private static void fourRows(
      MemorySegment x,
      long x0,
      long xStride,
      int inner,
      MemorySegment w,
      long left,
      long right,
      long stride,
      MemorySegment start,
      MemorySegment tile,
      long t0,
      long tStride) {
    x = known(x);
    w = known(w);
    start = known(start);
    tile = known(tile);
    long x1 = x0 + xStride;
    long x2 = x1 + xStride;
    long x3 = x2 + xStride;
    FloatVector a0 = load(start, 0);
    FloatVector b0 = load(start, 4L * W);
    FloatVector a1 = load(start, 0);
    FloatVector b1 = load(start, 4L * W);
    FloatVector a2 = load(start, 0);
    FloatVector b2 = load(start, 4L * W);
    FloatVector a3 = load(start, 0);
    FloatVector b3 = load(start, 4L * W);
    for (int k = 0; k < inner; k++) {
      FloatVector p = load(w, left + stride * k);
      FloatVector q = load(w, right + stride * k);
      long c = 4L * k;
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
    a0.intoMemorySegment(tile, t0, LE);
    b0.intoMemorySegment(tile, t0 + 4L * W, LE);
    a1.intoMemorySegment(tile, t0 + tStride, LE);
    b1.intoMemorySegment(tile, t0 + tStride + 4L * W, LE);
    a2.intoMemorySegment(tile, t0 + 2 * tStride, LE);
    b2.intoMemorySegment(tile, t0 + 2 * tStride + 4L * W, LE);
    a3.intoMemorySegment(tile, t0 + 3 * tStride, LE);
    b3.intoMemorySegment(tile, t0 + 3 * tStride + 4L * W, LE);
  }

  private static void eightRows(
      MemorySegment x,
      long x0,
      long xStride,
      int inner,
      MemorySegment w,
      long left,
      long right,
      long stride,
      MemorySegment start,
      MemorySegment tile,
      long t0,
      long tStride) {
    x = known(x);
    w = known(w);
    start = known(start);
    tile = known(tile);
    long x1 = x0 + xStride;
    long x2 = x1 + xStride;
    long x3 = x2 + xStride;
    long x4 = x3 + xStride;
    long x5 = x4 + xStride;
    long x6 = x5 + xStride;
    long x7 = x6 + xStride;
    FloatVector a0 = load(start, 0);
    FloatVector b0 = load(start, 4L * W);
    FloatVector a1 = load(start, 0);
    FloatVector b1 = load(start, 4L * W);
    FloatVector a2 = load(start, 0);
    FloatVector b2 = load(start, 4L * W);
    FloatVector a3 = load(start, 0);
    FloatVector b3 = load(start, 4L * W);
    FloatVector a4 = load(start, 0);
    FloatVector b4 = load(start, 4L * W);
    FloatVector a5 = load(start, 0);
    FloatVector b5 = load(start, 4L * W);
    FloatVector a6 = load(start, 0);
    FloatVector b6 = load(start, 4L * W);
    FloatVector a7 = load(start, 0);
    FloatVector b7 = load(start, 4L * W);
    for (int k = 0; k < inner; k++) {
      FloatVector p = load(w, left + stride * k);
      FloatVector q = load(w, right + stride * k);
      long c = 4L * k;
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
      xk = FloatVector.broadcast(F, x.get(ScalarLoops.F32, x4 + c));
      a4 = xk.fma(p, a4);
      b4 = xk.fma(q, b4);
      xk = FloatVector.broadcast(F, x.get(ScalarLoops.F32, x5 + c));
      a5 = xk.fma(p, a5);
      b5 = xk.fma(q, b5);
      xk = FloatVector.broadcast(F, x.get(ScalarLoops.F32, x6 + c));
      a6 = xk.fma(p, a6);
      b6 = xk.fma(q, b6);
      xk = FloatVector.broadcast(F, x.get(ScalarLoops.F32, x7 + c));
      a7 = xk.fma(p, a7);
      b7 = xk.fma(q, b7);
    }
    a0.intoMemorySegment(tile, t0, LE);
    b0.intoMemorySegment(tile, t0 + 4L * W, LE);
    a1.intoMemorySegment(tile, t0 + tStride, LE);
    b1.intoMemorySegment(tile, t0 + tStride + 4L * W, LE);
    a2.intoMemorySegment(tile, t0 + 2 * tStride, LE);
    b2.intoMemorySegment(tile, t0 + 2 * tStride + 4L * W, LE);
    a3.intoMemorySegment(tile, t0 + 3 * tStride, LE);
    b3.intoMemorySegment(tile, t0 + 3 * tStride + 4L * W, LE);
    a4.intoMemorySegment(tile, t0 + 4 * tStride, LE);
    b4.intoMemorySegment(tile, t0 + 4 * tStride + 4L * W, LE);
    a5.intoMemorySegment(tile, t0 + 5 * tStride, LE);
    b5.intoMemorySegment(tile, t0 + 5 * tStride + 4L * W, LE);
    a6.intoMemorySegment(tile, t0 + 6 * tStride, LE);
    b6.intoMemorySegment(tile, t0 + 6 * tStride + 4L * W, LE);
    a7.intoMemorySegment(tile, t0 + 7 * tStride, LE);
    b7.intoMemorySegment(tile, t0 + 7 * tStride + 4L * W, LE);
  }

  @Override
  public void scaleAdd(
      MemorySegment to, long toOffset, float factor, MemorySegment from, long fromOffset, int n) {
    to = known(to);
    from = known(from);
    FloatVector f = FloatVector.broadcast(F, factor);
    int whole = n - n % W;
    for (int i = 0; i < whole; i += W) {
      load(to, toOffset + 4L * i)
          .fma(f, load(from, fromOffset + 4L * i))
          .intoMemorySegment(to, toOffset + 4L * i, LE);
    }
    ScalarLoops.scaleAdd(to, toOffset, factor, from, fromOffset, whole, n);
  }

  @Override
  public void scale(MemorySegment x, long xOffset, int n, float factor, MemorySegment to, long at) {
    x = known(x);
    to = known(to);
    int whole = n - n % W;
    for (int i = 0; i < whole; i += W) {
      load(x, xOffset + 4L * i).mul(factor).intoMemorySegment(to, at + 4L * i, LE);
    }
    ScalarLoops.scale(x, xOffset, whole, n, factor, to, at);
  }

  @Override
  public float sum(MemorySegment x, long xOffset, int n) {
    x = known(x);
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
    x = known(x);
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
    x = known(x);
    weight = known(weight);
    bias = known(bias);
    out = known(out);
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
    x = known(x);
    int whole = n - n % W;
    switch (f) {
      case GELU_NEW -> {
        for (int i = 0; i < whole; i += W) {
          FloatVector v = load(x, xOffset + 4L * i);
          FloatVector cubic = v.mul(ScalarFunctions.GELU_CUBIC).mul(v).mul(v);
          timesSigmoid(v, cubic.add(v).mul(ScalarFunctions.GELU_SCALE), x, xOffset + 4L * i);
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
      case TANH -> {
        for (int i = 0; i < whole; i += W) {
          tanh(load(x, xOffset + 4L * i)).intoMemorySegment(x, xOffset + 4L * i, LE);
        }
      }
      case RELU2 -> {
        for (int i = 0; i < whole; i += W) {
          FloatVector v = load(x, xOffset + 4L * i).max(0);
          v.mul(v).intoMemorySegment(x, xOffset + 4L * i, LE);
        }
      }
      case RELU6 -> {
        for (int i = 0; i < whole; i += W) {
          load(x, xOffset + 4L * i).max(0).min(6).intoMemorySegment(x, xOffset + 4L * i, LE);
        }
      }
      case LEAKY_RELU -> {
        for (int i = 0; i < whole; i += W) {
          FloatVector v = load(x, xOffset + 4L * i);
          v.blend(v.mul(ScalarFunctions.LEAK), v.compare(VectorOperators.LT, 0))
              .intoMemorySegment(x, xOffset + 4L * i, LE);
        }
      }
      case SIGMOID -> {
        for (int i = 0; i < whole; i += W) {
          FloatVector v = load(x, xOffset + 4L * i);
          timesSigmoid(FloatVector.broadcast(F, 1f), v, x, xOffset + 4L * i);
        }
      }
      case MISH -> {
        for (int i = 0; i < whole; i += W) {
          FloatVector v = load(x, xOffset + 4L * i);
          FloatVector e = exp(v.min(ScalarFunctions.MISH_LARGE));
          FloatVector both = e.mul(e.add(2));
          v.mul(both.div(both.add(2))).intoMemorySegment(x, xOffset + 4L * i, LE);
        }
      }
      case GELU, GELU_10 -> whole = 0; // erf in double precision
    }
    ScalarLoops.activate(f, x, xOffset, whole, n);
  }

  private static void timesSigmoid(FloatVector v, FloatVector z, MemorySegment x, long offset) {
    x = known(x);
    v.div(exp(z.neg()).add(1)).intoMemorySegment(x, offset, LE);
  }

  /** The steps of {@link ScalarFunctions#tanh}. */
  private static FloatVector tanh(FloatVector x) {
    FloatVector z = x.mul(x);
    FloatVector p = FloatVector.broadcast(F, ScalarFunctions.TANH[0]);
    for (int i = 1; i < ScalarFunctions.TANH.length; i++) {
      p = p.fma(z, FloatVector.broadcast(F, ScalarFunctions.TANH[i]));
    }
    FloatVector magnitude = x.abs();
    FloatVector two = FloatVector.broadcast(F, 2f);
    FloatVector large = FloatVector.broadcast(F, 1f).sub(two.div(exp(magnitude.mul(2)).add(1)));
    large = large.blend(large.neg(), x.compare(VectorOperators.LT, 0));
    return large.blend(
        p.mul(z).fma(x, x), magnitude.compare(VectorOperators.LT, ScalarFunctions.TANH_SMALL));
  }

  /** The steps of {@link ScalarFunctions#exp}. */
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
  public float scaleScores(MemorySegment scores, long offset, int n, float scale, float max) {
    scores = known(scores);
    ScalarLoops.hide(scores, offset, n);
    FloatVector before = FloatVector.broadcast(F, max);
    FloatVector most = before;
    for (int j = 0; j < KEYS; j += W) {
      FloatVector x = load(scores, offset + 4L * j).mul(scale);
      x.intoMemorySegment(scores, offset + 4L * j, LE);
      most = most.blend(x, x.compare(VectorOperators.GT, most));
    }
    // rare after a row's first tile; exact in any order
    return most.compare(VectorOperators.GT, before).anyTrue()
        ? most.reduceLanes(VectorOperators.MAX)
        : max;
  }

  @Override
  public void exponentials(
      MemorySegment x, long offset, float shift, float factor, MemorySegment sums, long at) {
    x = known(x);
    sums = known(sums);
    for (int part = 0; part < LANES; part += W) {
      FloatVector sum = load(sums, at + 4L * part).mul(factor);
      for (int j = part; j < KEYS; j += LANES) {
        FloatVector e = exp(load(x, offset + 4L * j).sub(shift));
        e.intoMemorySegment(x, offset + 4L * j, LE);
        sum = sum.add(e);
      }
      sum.intoMemorySegment(sums, at + 4L * part, LE);
    }
  }

  @Override
  public float spread(
      MemorySegment x, long offset, float logSum, int distance, MemorySegment sums, long at) {
    x = known(x);
    sums = known(sums);
    FloatVector most = FloatVector.zero(F);
    for (int part = 0; part < LANES; part += W) {
      FloatVector entropy = load(sums, at + 4L * part);
      FloatVector mean = load(sums, at + 4L * (LANES + part));
      for (int j = part; j < KEYS; j += LANES) {
        FloatVector z = load(x, offset + 4L * j).sub(logSum);
        FloatVector p = exp(z);
        p.intoMemorySegment(x, offset + 4L * j, LE);
        entropy = p.fma(z.max(EXP_LOW), entropy); // 0 ln 0 = 0
        mean = p.fma(FloatVector.broadcast(F, j - distance).addIndex(1).abs(), mean);
        most = most.blend(p, p.compare(VectorOperators.GT, most));
      }
      entropy.intoMemorySegment(sums, at + 4L * part, LE);
      mean.intoMemorySegment(sums, at + 4L * (LANES + part), LE);
    }
    return most.reduceLanes(VectorOperators.MAX); // exact in any order
  }
}
