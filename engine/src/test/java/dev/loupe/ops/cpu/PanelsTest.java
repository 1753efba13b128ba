package dev.loupe.ops.cpu;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.ops.Precision;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Weights packed into panels of every type, and products by one row with them. */
class PanelsTest extends LoopsFixture {
  /** A weight [in, out] as a checkpoint has it. */
  private StoredTensor stored(Arena arena, DType dtype, int in, int out) {
    float[] values = floats(in * out);
    MemorySegment data = arena.allocate((long) dtype.bytes() * values.length + 1, 64).asSlice(1);
    dtype.encode(values, 0, values.length, data, 0);
    return new StoredTensor("w", dtype, List.of((long) in, (long) out), data);
  }

  /** What element [k, o] of the weight is once it is packed, by the definition of each type. */
  private static float[] values(StoredTensor w, Precision type) {
    int in = Math.toIntExact(w.shape().get(0));
    int out = Math.toIntExact(w.shape().get(1));
    float[] values = new float[in * out];
    w.read(0, values, 0, values.length);
    for (int o = 0; o < out; o++) {
      for (int k = 0; k < in; k++) {
        int at = k * out + o;
        values[at] =
            switch (type) {
              case F32 -> values[at];
              case F16 -> Float.float16ToFloat(Float.floatToFloat16(values[at]));
              case BF16 -> bf16(values[at]);
              case INT8 -> (float) Math.rint(values[at] / scale(w, k, o));
            };
      }
    }
    return values;
  }

  private static float bf16(float value) {
    byte[] two = new byte[2];
    DType.BF16.encode(new float[] {value}, 0, 1, MemorySegment.ofArray(two), 0);
    float[] back = new float[1];
    DType.BF16.decode(MemorySegment.ofArray(two), 0, back, 0, 1);
    return back[0];
  }

  private static float scale(StoredTensor w, int k, int o) {
    int in = Math.toIntExact(w.shape().get(0));
    int out = Math.toIntExact(w.shape().get(1));
    float largest = 0;
    float[] one = new float[1];
    for (int i = k / 64 * 64; i < Math.min(in, k / 64 * 64 + 64); i++) {
      w.read((long) i * out + o, one, 0, 1);
      largest = Math.max(largest, Math.abs(one[0]));
    }
    return largest / 127;
  }

  /** The product by one row, each sum from its first input to its last. */
  private static float[] product(float[] x, StoredTensor w, Precision type, float[] start) {
    int in = x.length;
    int out = start.length;
    float[] values = values(w, type);
    float[] sums = start.clone();
    for (int o = 0; o < out; o++) {
      for (int first = 0; first < in; first += 64) {
        float part = type == Precision.INT8 ? 0 : sums[o];
        int end = Math.min(in, first + 64);
        for (int k = first; k < end; k++) {
          part = Math.fma(x[k], values[k * out + o], part);
        }
        sums[o] = type == Precision.INT8 ? Math.fma(part, scale(w, first, o), sums[o]) : part;
      }
    }
    return sums;
  }

  @ParameterizedTest
  @MethodSource("vectors")
  void productsByOneRow(InnerLoops vector) {
    try (Arena arena = Arena.ofShared();
        WorkerPool pool = new WorkerPool(2)) {
      for (Precision type : Precision.values()) {
        for (int in : new int[] {1, 63, 64, 65, 200}) {
          for (int out : new int[] {1, 17, 64, 130}) {
            StoredTensor w = stored(arena, DType.F32, in, out);
            float[] x = floats(in);
            if (out == 130) {
              x[in / 2] *= 1e6f; // too large for tricks with exponents
            }
            float[] start = floats(out);
            float[] expected = product(x, w, type, start);
            for (InnerLoops loops : all(vector)) {
              Panels panels = Panels.ofColumns(w, type, loops.tileColumns(), arena, pool);
              assertEquals(type, panels.type());
              assertArrayEquals(expected, multiplied(loops, segment(arena, x), panels, start));
            }
          }
        }
      }
    }
  }

  private static float[] multiplied(InnerLoops loops, MemorySegment x, Panels w, float[] start) {
    int columns = w.columns();
    float[] result = start.clone();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment sums = segment(arena, new float[(1 + InnerLoops.STREAMS) * columns]);
      long at = 4L * columns;
      int turn = Panels.GROUP * (w.in() > 2 * Panels.GROUP ? 2 : 1);
      for (int p = 0; p < w.count(); p += InnerLoops.STREAMS) {
        int panels = Math.min(InnerLoops.STREAMS, w.count() - p);
        int n = Math.min(panels * columns, w.out() - p * columns);
        MemorySegment.copy(start, p * columns, sums, ScalarLoops.F32, at, n);
        for (int k = 0; k < w.in(); k += turn) {
          loops.multiplyOne(x, 4L * k, w, p, panels, k, Math.min(turn, w.in() - k), sums, at);
        }
        MemorySegment.copy(sums, ScalarLoops.F32, at, result, p * columns, n);
      }
    }
    return result;
  }

  /** A table's rows are outputs; the panels are those of its transpose. */
  @Test
  void tablesArePackedByRows() {
    try (Arena arena = Arena.ofShared();
        WorkerPool pool = new WorkerPool(2)) {
      int in = 70;
      int out = 40;
      StoredTensor w = stored(arena, DType.F16, in, out);
      float[] values = values(w, Precision.F32);
      MemorySegment rows = arena.allocate(2L * in * out);
      for (int o = 0; o < out; o++) {
        for (int k = 0; k < in; k++) {
          rows.setAtIndex(
              ValueLayout.JAVA_SHORT, o * in + k, Float.floatToFloat16(values[k * out + o]));
        }
      }
      StoredTensor table = new StoredTensor("t", DType.F16, List.of((long) out, (long) in), rows);
      for (Precision type : Precision.values()) {
        Panels one = Panels.ofColumns(w, type, 16, arena, pool);
        Panels two = Panels.ofRows(table, type, 16, arena, pool);
        assertEquals(-1, one.data().mismatch(two.data()), type.toString());
        assertEquals(-1, one.scales().mismatch(two.scales()), type.toString());
      }
    }
  }

  /** Infinity, NaN and what would round to infinity: such a weight stays f32. */
  @ParameterizedTest
  @ValueSource(floats = {Float.NaN, Float.NEGATIVE_INFINITY, 65520, 1e30f})
  void whatHalvesCannotHoldIsNotMadeHalves(float odd) {
    try (Arena arena = Arena.ofShared();
        WorkerPool pool = new WorkerPool(2)) {
      StoredTensor w = stored(arena, DType.F32, 3, 100);
      w.data(arena).set(ScalarLoops.F32, 4 * 150, odd);
      assertEquals(Precision.F32, Panels.ofColumns(w, Precision.F16, 16, arena, pool).type());
      assertEquals(Precision.BF16, Panels.ofColumns(w, Precision.BF16, 16, arena, pool).type());
      assertEquals(
          Float.isFinite(odd) ? Precision.INT8 : Precision.F32,
          Panels.ofColumns(w, Precision.INT8, 16, arena, pool).type());
    }
  }

  /** Every finite f16, every bf16 and every byte there is. */
  @ParameterizedTest
  @MethodSource("vectors")
  void wideningIsExact(InnerLoops vector) {
    try (Arena arena = Arena.ofConfined()) {
      for (Precision type : Precision.values()) {
        for (InnerLoops loops : all(vector)) {
          int columns = loops.tileColumns();
          int in = (1 << 16) / columns;
          MemorySegment data = arena.allocate(4L << 16);
          for (int i = 0; i < 1 << 16; i++) {
            data.set(ScalarLoops.I16, 2L * i, (short) i);
          }
          Panels panels = new Panels(type, in, columns, columns, data, MemorySegment.NULL);
          MemorySegment wide = arena.allocate(4L << 16);
          loops.widen(panels, 0, wide);
          for (int i = 0; i < 1 << 16; i++) {
            float expected =
                switch (type) {
                  case F32 -> data.get(ScalarLoops.F32, 4L * i);
                  case F16 -> Float.float16ToFloat((short) panels.place(i));
                  case BF16 -> Float.intBitsToFloat(panels.place(i) << 16);
                  case INT8 -> data.get(ValueLayout.JAVA_BYTE, i);
                };
            if (type != Precision.F16 || Float.isFinite(expected)) {
              assertEquals(expected, wide.get(ScalarLoops.F32, 4L * i), type + " " + i);
            }
          }
        }
      }
    }
  }
}
