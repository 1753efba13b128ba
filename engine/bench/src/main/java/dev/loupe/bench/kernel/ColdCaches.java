package dev.loupe.bench.kernel;

import dev.loupe.bench.Ceilings;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.stream.IntStream;

/** Makes a CPU's caches forget: memory of twice the last one's size is read through them. */
final class ColdCaches implements AutoCloseable {
  private static final long LEAST_BYTES = 32L << 20;
  private static final long MOST_BYTES = 128L << 20; // some ten milliseconds
  private static final long LINE = 64;

  private final int threads;
  private final Arena arena = Arena.ofShared();
  private final MemorySegment stream;

  @SuppressWarnings("unused") // written so that reading has a result
  private long sink;

  ColdCaches(int threads) {
    this.threads = threads;
    stream = arena.allocate(bytes(Ceilings.lastLevelCache()), LINE);
    stream.fill((byte) 1); // pages that nobody wrote are all the same page of zeros
  }

  static long bytes(long cache) {
    return Math.clamp(2 * cache, LEAST_BYTES, MOST_BYTES);
  }

  /** Every thread reads all of it, since cores share some caches, but seldom all. */
  void evict() {
    sink = IntStream.range(0, threads).parallel().mapToLong(thread -> read()).sum();
  }

  private long read() {
    long sum = 0;
    for (long at = 0; at < stream.byteSize(); at += LINE) {
      sum += stream.get(ValueLayout.JAVA_LONG, at);
    }
    return sum;
  }

  @Override
  public void close() {
    arena.close();
  }
}
