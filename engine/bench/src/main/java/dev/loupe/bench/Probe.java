package dev.loupe.bench;

import java.lang.foreign.MemorySegment;
import java.nio.ByteOrder;
import jdk.incubator.vector.FloatVector;
import jdk.incubator.vector.VectorSpecies;

/**
 * Loops that do nothing but read, or nothing but multiply and add, as fast as vectors go. Reading
 * takes one, two or four streams because hardware prefetchers differ in how many they want.
 */
final class Probe {
  private static final VectorSpecies<Float> SPECIES = FloatVector.SPECIES_PREFERRED;
  private static final ByteOrder ORDER = ByteOrder.nativeOrder();
  private static final long BYTES = SPECIES.vectorByteSize();

  /** Vectors that one turn of a reading loop takes; independent sums hide the adder's latency. */
  private static final long VECTORS = 4;

  /** Independent sums: latency times units is 8 to 10; 12 and two factors fit 16 registers. */
  static final int CHAINS = 12;

  static final int[] STREAMS = {1, 2, 4};

  private Probe() {}

  static int vectorBits() {
    return SPECIES.vectorBitSize();
  }

  /** Multiply-adds of one turn of {@link #multiplyAdd}. */
  static int multiplyAdds() {
    return CHAINS * SPECIES.length();
  }

  /** Length of a piece that {@link #read} takes whole. */
  static long wholeTurns(long bytes) {
    return bytes / (VECTORS * BYTES) * (VECTORS * BYTES);
  }

  /**
   * Reads a piece of memory.
   *
   * @param bytes a result of {@link #wholeTurns}
   * @param streams places that are read by turns, far from each other: 1, 2 or 4
   * @return a sum that keeps the compiler from leaving the loop out
   */
  static float read(MemorySegment from, long start, long bytes, int streams) {
    return switch (streams) {
      case 1 -> one(from, start, bytes);
      case 2 -> two(from, start, bytes);
      case 4 -> four(from, start, bytes);
      default -> throw new IllegalArgumentException(streams + " streams: not 1, 2 or 4");
    };
  }

  private static float one(MemorySegment from, long start, long bytes) {
    FloatVector a = FloatVector.zero(SPECIES);
    FloatVector b = a;
    FloatVector c = a;
    FloatVector d = a;
    for (long at = start; at < start + bytes; at += VECTORS * BYTES) {
      a = a.add(load(from, at));
      b = b.add(load(from, at + BYTES));
      c = c.add(load(from, at + 2 * BYTES));
      d = d.add(load(from, at + 3 * BYTES));
    }
    return a.add(b).add(c.add(d)).lane(0);
  }

  private static float two(MemorySegment from, long start, long bytes) {
    long half = bytes / 2;
    FloatVector a = FloatVector.zero(SPECIES);
    FloatVector b = a;
    FloatVector c = a;
    FloatVector d = a;
    for (long at = start; at < start + half; at += 2 * BYTES) {
      a = a.add(load(from, at));
      b = b.add(load(from, at + BYTES));
      c = c.add(load(from, at + half));
      d = d.add(load(from, at + half + BYTES));
    }
    return a.add(b).add(c.add(d)).lane(0);
  }

  private static float four(MemorySegment from, long start, long bytes) {
    long quarter = bytes / 4;
    FloatVector a = FloatVector.zero(SPECIES);
    FloatVector b = a;
    FloatVector c = a;
    FloatVector d = a;
    for (long at = start; at < start + quarter; at += BYTES) {
      a = a.add(load(from, at));
      b = b.add(load(from, at + quarter));
      c = c.add(load(from, at + 2 * quarter));
      d = d.add(load(from, at + 3 * quarter));
    }
    return a.add(b).add(c.add(d)).lane(0);
  }

  private static FloatVector load(MemorySegment from, long at) {
    return FloatVector.fromMemorySegment(SPECIES, from, at, ORDER);
  }

  /** Multiplies and adds in {@link #CHAINS} sums that do not wait for each other. */
  static float multiplyAdd(int turns) {
    FloatVector x = FloatVector.broadcast(SPECIES, 1f / 1024);
    FloatVector y = x;
    FloatVector a = FloatVector.zero(SPECIES);
    FloatVector b = a;
    FloatVector c = a;
    FloatVector d = a;
    FloatVector e = a;
    FloatVector f = a;
    FloatVector g = a;
    FloatVector h = a;
    FloatVector i = a;
    FloatVector j = a;
    FloatVector k = a;
    FloatVector l = a;
    for (int turn = 0; turn < turns; turn++) {
      a = x.fma(y, a);
      b = x.fma(y, b);
      c = x.fma(y, c);
      d = x.fma(y, d);
      e = x.fma(y, e);
      f = x.fma(y, f);
      g = x.fma(y, g);
      h = x.fma(y, h);
      i = x.fma(y, i);
      j = x.fma(y, j);
      k = x.fma(y, k);
      l = x.fma(y, l);
    }
    a = a.add(b).add(c).add(d).add(e).add(f);
    return a.add(g).add(h).add(i).add(j).add(k).add(l).lane(0);
  }
}
