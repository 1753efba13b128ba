package dev.loupe.bench;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CyclicBarrier;

/**
 * The best that so many threads of this machine do, measured by loops that do nothing else.
 *
 * @param readBytes bytes a second read from memory, by as many streams as were fastest
 * @param multiplyAdds f32 multiply-adds a second, from registers
 */
public record Ceilings(double readBytes, double multiplyAdds) {
  private static final long LEAST_BYTES = 256L << 20;
  private static final long MOST_BYTES = 1L << 30;

  /** Times the last-level cache: what is left in it from the last time then hardly matters. */
  private static final int CACHES = 8;

  private static final long USUAL_CACHE = 32L << 20;

  /** Of each loop. Tests that look at something else ask for fewer: a figure takes seconds. */
  private static final int ROUNDS = Integer.getInteger("loupe.ceilings.rounds", 20);

  private static final int TURNS = 1 << 20; // of the multiplying loop in a round: milliseconds
  private static final int WARM_UP_TURNS = 1 << 9; // Vector API code is slow until it is compiled
  private static final long WARM_UP_BYTES = 1 << 16;
  private static final long WARM_UP_NANOS = 300_000_000;

  @SuppressWarnings("unused") // written so that the loops have a result
  private static volatile float sink;

  private static boolean warm;

  /** Work that a thread does in every round. */
  private interface Share {
    float run(int thread);
  }

  /**
   * Has the loops compiled, for about two seconds the first time. False where the Vector API is
   * missing: plain loops say little of what the machine can do.
   */
  public static synchronized boolean warmUp() {
    if (ModuleLayer.boot().findModule("jdk.incubator.vector").isEmpty()) {
      return false;
    }
    if (!warm) {
      warmUpLoops();
      warm = true;
    }
    return true;
  }

  /**
   * Measures, once warm in about half a second, with an array of 256 MB to 1 GB, eight times the
   * last-level cache where that is known.
   *
   * @param threads that work at once; at least 1
   */
  public static Ceilings measure(int threads) {
    double best = 0;
    try (Arena arena = Arena.ofShared()) {
      long share = Probe.wholeTurns(arrayBytes(lastLevelCache()) / threads);
      MemorySegment array = arena.allocate(share * threads, 64);
      rounds(threads, 1, thread -> fill(array, share * thread, share));
      for (int streams : Probe.STREAMS) {
        double seconds =
            rounds(threads, ROUNDS, thread -> Probe.read(array, share * thread, share, streams));
        best = Math.max(best, array.byteSize() / seconds);
      }
    }
    double seconds = rounds(threads, ROUNDS, thread -> Probe.multiplyAdd(TURNS));
    return new Ceilings(best, (double) threads * TURNS * Probe.multiplyAdds() / seconds);
  }

  /** The better of both in each: what else ran on the machine only took away. */
  public Ceilings orBetter(Ceilings other) {
    return new Ceilings(
        Math.max(readBytes, other.readBytes), Math.max(multiplyAdds, other.multiplyAdds));
  }

  static long arrayBytes(long cache) {
    return Math.clamp(CACHES * cache, LEAST_BYTES, MOST_BYTES);
  }

  /** Bytes, as Linux says; a usual size elsewhere. */
  public static long lastLevelCache() {
    try {
      String size =
          Files.readString(Path.of("/sys/devices/system/cpu/cpu0/cache/index3/size")).strip();
      return size.matches("[0-9]{1,9}K")
          ? Long.parseLong(size.substring(0, size.length() - 1)) << 10
          : USUAL_CACHE;
    } catch (IOException e) {
      return USUAL_CACHE;
    }
  }

  private static float fill(MemorySegment array, long start, long bytes) {
    for (long at = start; at < start + bytes; at += Float.BYTES) {
      array.set(ValueLayout.JAVA_FLOAT, at, (at & 0xFFF) * 1e-3f);
    }
    return 0;
  }

  private static void warmUpLoops() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment small = arena.allocate(WARM_UP_BYTES, 64);
      for (int streams : Probe.STREAMS) {
        long end = System.nanoTime() + WARM_UP_NANOS;
        while (System.nanoTime() < end) {
          sink = Probe.read(small, 0, WARM_UP_BYTES, streams);
        }
      }
    }
    long end = System.nanoTime() + WARM_UP_NANOS;
    while (System.nanoTime() < end) {
      sink = Probe.multiplyAdd(WARM_UP_TURNS);
    }
  }

  /** Seconds of the fastest round, from the first thread's start to the last one's end. */
  private static double rounds(int threads, int rounds, Share share) {
    long[][] begun = new long[rounds][threads];
    long[][] ended = new long[rounds][threads];
    CyclicBarrier barrier = new CyclicBarrier(threads);
    Thread[] team = new Thread[threads];
    for (int t = 0; t < threads; t++) {
      int thread = t;
      team[t] =
          Thread.ofPlatform()
              .daemon()
              .start(
                  () -> {
                    for (int round = 0; round < rounds && meet(barrier); round++) {
                      begun[round][thread] = System.nanoTime();
                      sink = share.run(thread);
                      ended[round][thread] = System.nanoTime();
                    }
                  });
    }
    for (Thread thread : team) {
      join(thread);
    }
    double best = Double.POSITIVE_INFINITY;
    for (int round = 0; round < rounds; round++) {
      long first = begun[round][0];
      long last = ended[round][0];
      for (int t = 1; t < threads; t++) {
        first = Math.min(first, begun[round][t]);
        last = Math.max(last, ended[round][t]);
      }
      best = Math.min(best, (last - first) / 1e9);
    }
    return best;
  }

  private static boolean meet(CyclicBarrier barrier) {
    try {
      barrier.await();
      return true;
    } catch (InterruptedException | BrokenBarrierException e) {
      return false; // nobody interrupts these threads
    }
  }

  private static void join(Thread thread) {
    boolean interrupted = false;
    while (thread.isAlive()) {
      try {
        thread.join();
      } catch (InterruptedException e) {
        interrupted = true; // a matter for the caller, after the array is out of use
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }
}
