package dev.loupe.cuda.probe;

import dev.loupe.cuda.driver.Element;
import java.util.Arrays;
import java.util.Random;

/**
 * The kernels of probes.cu: each with inputs, and with what has to come of them by plain loops that
 * are written from what gpu.cuh says of its primitives.
 */
enum Probe {
  MMA_F16 {
    @Override
    void check(ProbeDevice device) {
      MatrixProbe.SIXTEEN_F16.check(device);
    }
  },
  MMA_BF16 {
    @Override
    void check(ProbeDevice device) {
      MatrixProbe.SIXTEEN_BF16.check(device);
    }
  },
  MMA_TF32 {
    @Override
    void check(ProbeDevice device) {
      MatrixProbe.EIGHT_TF32.check(device);
    }
  },
  LDMATRIX {
    @Override
    void check(ProbeDevice device) {
      loadMatrix(device, false);
    }
  },
  LDMATRIX_TRANS {
    @Override
    void check(ProbeDevice device) {
      loadMatrix(device, true);
    }
  },
  CP_ASYNC {
    @Override
    void check(ProbeDevice device) {
      int[] x = new Random(3).ints(2 * 64 * 4).toArray();
      int[] valid = new Random(4).ints(2 * 64, 0, 3).toArray(); // true if not 0
      int[] y = new int[x.length];
      device.run("probe_cp_async", ProbeDevice.Shape.of(64, 2048), x, valid, y);
      for (int i = 0; i < y.length; i++) {
        int slot = i / 4 / 64 * 64 + (i / 4 % 64 ^ 33); // of another thread
        equal("y", i, valid[slot] != 0 ? x[slot * 4 + i % 4] : 0, y[i]);
      }
    }
  },
  SHARED128 {
    @Override
    void check(ProbeDevice device) {
      int[] x = new Random(5).ints(2 * 32 * 4).toArray();
      int[] y = new int[x.length];
      device.run("probe_shared128", ProbeDevice.Shape.of(32, 1024), x, y);
      for (int i = 0; i < y.length; i++) {
        equal("y", i, x[i / 128 * 128 + (31 - i / 4 % 32) * 4 + i % 4], y[i]);
      }
    }
  },
  EXP2 {
    @Override
    void check(ProbeDevice device) {
      float[] x = AwkwardFloats.with(6, i -> (i % 2 == 0 ? 1 : -1) * i / 19f);
      float[] y = new float[x.length];
      device.run("probe_exp2", ProbeDevice.Shape.each(x.length), x, y, x.length);
      for (int i = 0; i < x.length; i++) {
        double exact = Math.pow(2, x[i]);
        double flushed = exact < Float.MIN_NORMAL ? 0 : exact;
        // 2 ulp of what the ISA promises; at the edge of what is flushed either will do
        boolean edge = Math.abs(exact / Float.MIN_NORMAL - 1) < 1e-6 && y[i] == 0;
        close("2^" + x[i], i, flushed, edge ? flushed : y[i], 2 * Math.ulp((float) flushed));
      }
    }
  },
  TF32 {
    @Override
    void check(ProbeDevice device) {
      float[] x = AwkwardFloats.with(7, i -> Float.intBitsToFloat(0x3f800000 + i * 0x800));
      int[] y = new int[x.length];
      device.run("probe_tf32", ProbeDevice.Shape.each(x.length), x, y, x.length);
      for (int i = 0; i < x.length; i++) {
        if (!device.has(80)) { // as it is
          equal("bits", i, Float.floatToRawIntBits(x[i]), y[i]);
        } else if (Float.isNaN(x[i])) {
          equal("NaN", i, 1, Float.isNaN(Float.intBitsToFloat(y[i])) ? 1 : 0);
        } else { // the low 13 bits are not part of tf32
          float tf32 = Float.intBitsToFloat(y[i] & ~0x1fff);
          close("tf32 of " + x[i], i, AwkwardFloats.tiesAway(x[i], 10), tf32, 0);
        }
      }
    }
  },
  PACK {
    @Override
    void check(ProbeDevice device) {
      float[] x = AwkwardFloats.with(8, i -> Float.intBitsToFloat(0x3f800000 + i * 0x1000));
      int n = x.length / 2;
      int[] y = new int[2 * n];
      device.run("probe_pack", ProbeDevice.Shape.each(n), x, y, n);
      for (int i = 0; i < 2 * n; i++) {
        for (int half = 0; half < 2; half++) {
          short bits = (short) (y[i] >>> (16 * half));
          sixteen(i % 2 == 0 ? Element.F16 : Element.BF16, x[i / 2 * 2 + half], bits, i);
        }
      }
    }
  },
  ELEMENTS {
    @Override
    void check(ProbeDevice device) {
      float[] x = AwkwardFloats.with(9, i -> Float.intBitsToFloat(0x33000000 + i * 0x08001000));
      int n = x.length;
      int[] f16 = new int[n / 2];
      int[] bf16 = new int[n / 2];
      float[][] back = new float[2][n];
      device.run("probe_elements", ProbeDevice.Shape.each(n), x, f16, bf16, back[0], back[1], n);
      for (int i = 0; i < n; i++) {
        short half = (short) (f16[i / 2] >>> (i % 2 * 16));
        short bfloat = (short) (bf16[i / 2] >>> (i % 2 * 16));
        sixteen(Element.F16, x[i], half, i);
        sixteen(Element.BF16, x[i], bfloat, i);
        close("f16 back", i, Float.float16ToFloat(half), back[0][i], 0);
        close("bf16 back", i, Float.intBitsToFloat(bfloat << 16), back[1][i], 0);
      }
    }
  },
  WARP {
    @Override
    void check(ProbeDevice device) {
      warp(device);
    }
  },
  NAMED_BARRIER {
    @Override
    void check(ProbeDevice device) {
      int[] turns = {3, 5};
      int[] sums = new int[128];
      device.run("probe_named_barrier", ProbeDevice.Shape.of(128, 512), turns, sums);
      for (int t = 0; t < 128; t++) {
        int n = turns[t / 64];
        equal("sum", t, n * (n - 1) / 2 * 1000 + n * (t ^ 32), sums[t]);
      }
    }
  },
  GRID_SYNC {
    @Override
    void check(ProbeDevice device) {
      int blocks = 3;
      int rounds = 4;
      int[] words = new int[blocks];
      int[] sums = new int[blocks];
      device.run(
          "probe_grid_sync", new ProbeDevice.Shape(blocks, 64, 0, true), words, sums, rounds);
      for (int b = 0; b < blocks; b++) {
        equal("sum", b, rounds * (rounds - 1) / 2 * 100 + rounds * ((b + 1) % blocks), sums[b]);
      }
    }
  },
  ATOMICS {
    @Override
    void check(ProbeDevice device) {
      int n = 1000;
      int[] keys = new Random(10).ints(n, 0, 7).toArray(); // none is 7
      int[] counts = new int[8];
      int[] weights = new int[16];
      device.run("probe_atomics", ProbeDevice.Shape.of(96, 96), keys, counts, weights, n);
      for (int key = 0; key < 8; key++) {
        int count = 0;
        long weight = 0;
        for (int i = 0; i < n; i++) {
          if (keys[i] == key) {
            count++;
            weight += 0x40000001L * (i + 1);
          }
        }
        equal("count", key, count, counts[key]);
        equal("weight's low half", key, (int) weight, weights[2 * key]);
        equal("weight's high half", key, (int) (weight >>> 32), weights[2 * key + 1]);
      }
    }
  };

  /** Runs it and fails with the first result that is not what plain loops give. */
  abstract void check(ProbeDevice device);

  /** The least compute capability, times ten, whose code has it. */
  int from() {
    return this == MMA_BF16 || this == MMA_TF32 ? 80 : 75;
  }

  private static void loadMatrix(ProbeDevice device, boolean transposed) {
    int[] rows = new Random(1).ints(32 * 4).toArray(); // [32] of 8 values of 16 bits
    int[] order = new int[32];
    Arrays.setAll(order, lane -> lane * 13 % 32); // a permutation
    int[] r = new int[32 * 4];
    device.run(
        transposed ? "probe_ldmatrix_trans" : "probe_ldmatrix",
        ProbeDevice.Shape.of(32, 512),
        rows,
        order,
        r);
    for (int lane = 0; lane < 32; lane++) {
      for (int matrix = 0; matrix < 4; matrix++) {
        for (int half = 0; half < 2; half++) {
          int first = lane / 4;
          int second = lane % 4 * 2 + half;
          int row = order[8 * matrix + (transposed ? second : first)];
          int column = transposed ? first : second;
          equal(
              "matrix %d of lane".formatted(matrix),
              lane,
              rows[row * 4 + column / 2] >>> (column % 2 * 16) & 0xffff,
              r[lane * 4 + matrix] >>> (half * 16) & 0xffff);
        }
      }
    }
  }

  private static void warp(ProbeDevice device) {
    float[] x = new float[64];
    Random random = new Random(11);
    for (int i = 0; i < 64; i++) {
      x[i] = random.nextInt(-1000, 1000) / 8f; // sums are exact in any order
    }
    x[17] = Float.NaN; // in the first warp; a maximum passes over it
    x[40] = 0;
    float[] y = new float[8 * 64];
    device.run("probe_warp", ProbeDevice.Shape.of(64, 0), x, y);
    for (int t = 0; t < 64; t++) {
      int first = t / 32 * 32;
      int lane = t % 32;
      double sum = 0;
      double max = Double.NEGATIVE_INFINITY;
      int positive = 0;
      int below = 0;
      for (int i = 0; i < 32; i++) {
        float of = x[first + i];
        sum += of;
        max = Float.isNaN(of) ? max : Math.max(max, of);
        positive |= of > 0 ? 1 << i : 0;
        below += of < 1 ? 1 : 0;
      }
      close("sum", t, sum, y[t], 0);
      close("max", t, max, y[64 + t], 0);
      close("xor", t, x[first + (lane ^ 5)], y[128 + t], 0);
      close("lane", t, x[first + lane * 7 % 32], y[192 + t], 0);
      close("up", t, x[lane < 3 ? t : t - 3], y[256 + t], 0);
      equal("ballot", t, positive, Float.floatToRawIntBits(y[320 + t]));
      close("half", t, lane < 16 ? -x[t] : x[t ^ 1], y[384 + t], 0);
      close("count", t, below, y[448 + t], 0);
    }
  }

  /** A stored element, ties to even. */
  private static void sixteen(Element element, float x, short bits, int at) {
    boolean f16 = element == Element.F16;
    float stored = f16 ? Float.float16ToFloat(bits) : Float.intBitsToFloat(bits << 16);
    double nearest = AwkwardFloats.tiesToEven(x, f16 ? 10 : 7, f16 ? -14 : -126, f16 ? 15 : 127);
    close("%s of %s".formatted(element, x), at, nearest, stored, 0);
  }

  static void equal(String what, int at, int expected, int actual) {
    if (expected != actual) {
      throw new AssertionError("%s %d is %08x, not %08x".formatted(what, at, actual, expected));
    }
  }

  /** Fails unless both are NaN, or equal, or no further apart than {@code allowed}. */
  static void close(String what, int at, double expected, double actual, double allowed) {
    boolean same =
        Double.isNaN(expected)
            ? Double.isNaN(actual)
            : expected == actual || Math.abs(expected - actual) <= allowed;
    if (!same) {
      throw new AssertionError("%s %d is %s, not %s".formatted(what, at, actual, expected));
    }
  }
}
