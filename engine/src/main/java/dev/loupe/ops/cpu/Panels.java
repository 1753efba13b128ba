package dev.loupe.ops.cpu;

import dev.loupe.ops.Precision;
import dev.loupe.ops.Weight;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;

/**
 * A weight as panels of neighbouring outputs: [out / columns, in, columns]. A matrix-vector product
 * reads each panel from its first byte to its last, several at once; a matrix product finds the
 * operands of one step side by side. Outputs beyond the last are zeros.
 *
 * <p>16-bit elements lie in pairs, one of the first vector and the one of the second with the same
 * lane, so that a 32-bit lane holds both and is taken apart by shifts and masks.
 *
 * @param type what the elements are
 * @param columns outputs of a panel: two vectors
 * @param data the panels, one after the other
 * @param scales of INT8: f32 [panels, groups, columns]; else empty
 */
record Panels(
    Precision type, int in, int out, int columns, MemorySegment data, MemorySegment scales)
    implements Weight {
  /** Of nothing. */
  static final Panels NONE =
      new Panels(Precision.F32, 0, 0, 1, MemorySegment.NULL, MemorySegment.NULL);

  /** Inputs that share a scale in INT8. */
  static final int GROUP = 64;

  private static final int LARGEST_BYTE = 127;
  private static final int SLACK =
      64; // the shortest vector of bytes is longer than 4 floats' worth

  /** Where a panel's elements come from. */
  private interface Source {
    /** block[k, j] = weight of input k and output first + j, for j &lt; n. */
    void read(MemorySegment data, int first, int n, float[] block, int columns);
  }

  /** Packs Conv1D's [in, out]. */
  static Panels ofColumns(
      StoredTensor stored, Precision type, int columns, Arena arena, WorkerPool pool) {
    int in = Math.toIntExact(stored.shape().getFirst());
    int out = Math.toIntExact(stored.shape().getLast());
    DType dtype = stored.dtype();
    Source source =
        (data, first, n, block, width) -> {
          for (int k = 0; k < in; k++) {
            dtype.decode(data, ((long) k * out + first) * dtype.bytes(), block, k * width, n);
          }
        };
    return pack(stored, type, in, out, columns, arena, pool, source);
  }

  /** Packs a table [out, in], one row for each output. */
  static Panels ofRows(
      StoredTensor stored, Precision type, int columns, Arena arena, WorkerPool pool) {
    int out = Math.toIntExact(stored.shape().getFirst());
    int in = Math.toIntExact(stored.shape().getLast());
    DType dtype = stored.dtype();
    Source source =
        (data, first, n, block, width) -> {
          float[] row = new float[in];
          for (int j = 0; j < n; j++) {
            dtype.decode(data, (long) (first + j) * in * dtype.bytes(), row, 0, in);
            for (int k = 0; k < in; k++) {
              block[k * width + j] = row[k];
            }
          }
        };
    return pack(stored, type, in, out, columns, arena, pool, source);
  }

  /** What {@code stored} makes of its file is held while it is packed, and no longer. */
  private static Panels pack(
      StoredTensor stored,
      Precision type,
      int in,
      int out,
      int columns,
      Arena arena,
      WorkerPool pool,
      Source source) {
    try (Arena one = Arena.ofShared()) {
      return pack(stored.data(one), type, in, out, columns, arena, pool, source);
    }
  }

  private static Panels pack(
      MemorySegment from,
      Precision type,
      int in,
      int out,
      int columns,
      Arena arena,
      WorkerPool pool,
      Source source) {
    int count = Math.ceilDiv(out, columns);
    int groups = Math.ceilDiv(in, GROUP);
    long bytes = (long) count * in * columns * type.bytes();
    MemorySegment data = Pages.allocate(arena, bytes + SLACK);
    MemorySegment scales =
        type == Precision.INT8
            ? Pages.allocate(arena, 4L * count * groups * columns)
            : MemorySegment.NULL;
    Panels panels = new Panels(type, in, out, columns, data, scales);
    float[][] blocks = new float[pool.workers()][];
    boolean[] special = new boolean[pool.workers()];
    pool.run(
        count,
        (panel, worker) -> {
          if (blocks[worker] == null) {
            blocks[worker] = new float[in * columns];
          }
          float[] block = blocks[worker];
          int n = Math.min(columns, out - panel * columns);
          if (n < columns) {
            Arrays.fill(block, 0);
          }
          source.read(from, panel * columns, n, block, columns);
          special[worker] |= panels.put(panel, block);
        });
    for (boolean found : special) {
      if (found) { // the loops take every f16 for a number, and bytes can't say infinity
        return pack(from, Precision.F32, in, out, columns, arena, pool, source);
      }
    }
    return panels;
  }

  /** Stores a panel; true if one of its elements is no finite number in this type. */
  private boolean put(int panel, float[] block) {
    long at = offset(panel);
    switch (type) {
      case F32 -> DType.F32.encode(block, 0, block.length, data, at);
      case BF16 -> DType.BF16.encode(paired(block), 0, block.length, data, at);
      case F16 -> {
        DType.F16.encode(paired(block), 0, block.length, data, at);
        for (float value : block) {
          if (!(Math.abs(value) < 65520)) { // rounds to an infinity, or is none
            return true;
          }
        }
      }
      case INT8 -> {
        for (int first = 0; first < in; first += GROUP) {
          for (int j = 0; j < columns; j++) {
            if (!quantise(panel, first, j, block)) {
              return true;
            }
          }
        }
      }
    }
    return false;
  }

  private float[] paired(float[] block) {
    float[] pairs = new float[block.length];
    for (int i = 0; i < block.length; i++) {
      pairs[place(i)] = block[i];
    }
    return pairs;
  }

  /** Where element {@code i} of a panel, [in, columns], lies among its 16-bit ones. */
  int place(int i) {
    int j = i % columns;
    int half = columns / 2;
    return i - j + j % half * 2 + j / half;
  }

  private boolean quantise(int panel, int first, int j, float[] block) {
    int end = Math.min(in, first + GROUP);
    float largest = 0;
    for (int k = first; k < end; k++) {
      largest = Math.max(largest, Math.abs(block[k * columns + j])); // NaN stays
    }
    if (!Float.isFinite(largest)) {
      return false;
    }
    float scale = largest / LARGEST_BYTE;
    long at = scaleOffset(panel, first / GROUP) + 4L * j;
    scales.set(ValueLayout.JAVA_FLOAT, at, scale);
    for (int k = first; k < end; k++) {
      int step = scale == 0 ? 0 : (int) Math.rint(block[k * columns + j] / scale);
      long to = offset(panel) + (long) k * columns + j;
      data.set(ValueLayout.JAVA_BYTE, to, (byte) Math.clamp(step, -LARGEST_BYTE, LARGEST_BYTE));
    }
    return true;
  }

  /** How many panels there are. */
  int count() {
    return Math.ceilDiv(out, columns);
  }

  /** Where a panel begins in {@link #data}, in bytes. */
  long offset(int panel) {
    return panelBytes() * panel;
  }

  /** Where the weights of input {@code k} begin in a panel. */
  long offset(int panel, int k) {
    return offset(panel) + (long) k * columns * type.bytes();
  }

  long panelBytes() {
    return (long) in * columns * type.bytes();
  }

  /** Where the scales of a group of a panel begin in {@link #scales}, in bytes. */
  long scaleOffset(int panel, int group) {
    return 4L * ((long) panel * Math.ceilDiv(in, GROUP) + group) * columns;
  }
}
