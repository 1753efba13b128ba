package dev.loupe.ops.cpu;

import dev.loupe.weights.Activation;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Runs vector loops on nothing, beside the real work, until Java's compiler has made instructions
 * of them: before that they take a hundred times as long as plain ones, which give the same bits.
 */
final class WarmUp implements Runnable {
  private static final Set<String> DONE = ConcurrentHashMap.newKeySet(); // in this process

  private static final int INNER = 256;
  private static final long FAST_NANOS = 300_000; // a round; 30 us when compiled, before that ms
  private static final int FAST_ROUNDS = 5;
  private static final long LONGEST_NANOS = 10_000_000_000L;

  private final InnerLoops loops;
  private final Panels w;
  private final MemorySegment x;
  private final String key;
  private volatile boolean over;

  private WarmUp(InnerLoops loops, Panels.Type type, String key) {
    this.loops = loops;
    this.key = key;
    int columns = loops.tileColumns();
    int out = InnerLoops.STREAMS * columns + 1; // so that there is a panel by itself
    int panels = Math.ceilDiv(out, columns);
    Arena arena = Arena.ofAuto();
    MemorySegment data = arena.allocate(4L * INNER * columns * panels, 64);
    MemorySegment scales = arena.allocate(4L * INNER * columns * panels, 64);
    w = new Panels(type, INNER, out, columns, data, scales);
    x = arena.allocate(4L * INNER * 2 * loops.tileRows() * columns, 64);
  }

  /** Starts it for weights of a type, unless that was done in this process. */
  static WarmUp start(InnerLoops loops, Panels.Type type) {
    String key = loops + " " + type;
    WarmUp warmUp = new WarmUp(loops, type, key);
    if (DONE.contains(key)) {
      warmUp.over = true;
    } else {
      Thread.ofPlatform().daemon().name("loupe-warm-up").start(warmUp);
    }
    return warmUp;
  }

  boolean over() {
    return over;
  }

  @Override
  public void run() {
    long begin = System.nanoTime();
    long start = begin;
    int fast = 0;
    while (fast < FAST_ROUNDS && start - begin < LONGEST_NANOS) {
      round();
      long now = System.nanoTime();
      fast = now - start < FAST_NANOS ? fast + 1 : 0;
      start = now;
    }
    DONE.add(key);
    over = true;
  }

  /** Everything that a forward pass uses, once. */
  private void round() {
    loops.multiplyOne(x, 0, w, 0, InnerLoops.STREAMS, x);
    loops.multiplyOne(x, 0, w, InnerLoops.STREAMS, 1, x);
    if (w.type() != Panels.Type.F32) {
      loops.widen(w, 0, x);
    }
    long width = 4L * w.columns();
    for (int rows : new int[] {loops.tileRows(), 1}) {
      loops.multiplyTile(x, 0, 4L * INNER, rows, INNER, x, 0, width / 2, width, x, x, 0, width);
    }
    if (w.type() == Panels.Type.INT8) {
      loops.addScaled(x, 0, loops.tileRows(), w.scales(), 0, x, 0, width);
    }
    float sum = loops.sum(x, 0, INNER) + loops.sumOfSquares(x, 0, INNER, 0.5f);
    loops.normalise(x, 0, INNER, sum, 0.5f, x, x, x, 0);
    loops.activate(Activation.GELU_NEW, x, 0, INNER);
    float max = loops.scaleScores(x, 0, InnerLoops.KEYS, 0.5f, 0);
    loops.exponentials(x, 0, max, 0, x, 4L * InnerLoops.KEYS);
    loops.scaleAdd(x, 0, 0.5f, x, 4L * InnerLoops.KEYS, InnerLoops.KEYS);
    loops.scale(x, 0, InnerLoops.KEYS, 0.5f, x, 4L * InnerLoops.KEYS);
    x.fill((byte) 0); // numbers stay numbers
  }
}
