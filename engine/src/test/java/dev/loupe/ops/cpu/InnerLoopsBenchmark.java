package dev.loupe.ops.cpu;

import dev.loupe.ops.Precision;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Level;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.profile.GCProfiler;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.OptionsBuilder;
import org.openjdk.jmh.runner.options.TimeValue;

/**
 * The loops of one thread at the sizes of GPT-2 124M, in microseconds, with what they allocate:
 *
 * <pre>
 * mvn -B -ntp test -Dexec.skip=true -Dtest=InnerLoopsBenchmark -Dsurefire.failIfNoSpecifiedTests=false
 * </pre>
 */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.MICROSECONDS)
public class InnerLoopsBenchmark {
  private static final int WIDTH = 768;
  private static final int HEAD = 64;

  private final Arena arena = Arena.ofShared();
  private final InnerLoops loops = InnerLoops.best(0);
  private final MemorySegment sums = arena.allocate(4096, 64);
  private final MemorySegment tile = arena.allocate(4096, 64); // 8 rows of 32 at most
  private final MemorySegment scores = arena.allocate(4096, 64);
  private final MemorySegment start = arena.allocate(4096, 64);
  private final MemorySegment lanes = arena.allocate(4096, 64);
  private MemorySegment x = MemorySegment.NULL; // [tileRows, WIDTH]
  private MemorySegment w = MemorySegment.NULL; // [WIDTH, WIDTH]
  private Panels panels = Panels.NONE; // of w

  @Param({"F32", "F16", "BF16", "INT8"})
  public String type = "F32";

  /** Surefire runs this when it is named; its name keeps it out of the usual tests. */
  @Test
  void run() throws RunnerException {
    new Runner(
            new OptionsBuilder()
                .include(InnerLoopsBenchmark.class.getName())
                .jvmArgsAppend("--add-modules", "jdk.incubator.vector")
                .addProfiler(GCProfiler.class)
                .forks(1)
                .warmupIterations(3)
                .warmupTime(TimeValue.seconds(1))
                .measurementIterations(5)
                .measurementTime(TimeValue.seconds(1))
                .build())
        .run();
  }

  @Setup(Level.Trial)
  public void fill() {
    x = filled(loops.tileRows() * WIDTH);
    w = filled(WIDTH * WIDTH);
    StoredTensor stored = new StoredTensor("w", DType.F32, List.of((long) WIDTH, (long) WIDTH), w);
    try (WorkerPool pool = new WorkerPool(1)) {
      panels = Panels.ofColumns(stored, Precision.valueOf(type), loops.tileColumns(), arena, pool);
    }
  }

  private MemorySegment filled(int floats) {
    MemorySegment segment = arena.allocate(4L * floats, 64);
    for (int i = 0; i < floats; i++) {
      segment.set(ScalarLoops.F32, 4L * i, (i % 17 - 8) / 8f);
    }
    return segment;
  }

  @TearDown(Level.Trial)
  public void free() {
    arena.close();
  }

  /** A linear map of one row: [WIDTH] times [WIDTH, WIDTH]. */
  @Benchmark
  public MemorySegment linearRow() {
    for (int panel = 0; panel < panels.count(); panel += InnerLoops.STREAMS) {
      int n = Math.min(InnerLoops.STREAMS, panels.count() - panel);
      loops.multiplyOne(x, 0, panels, panel, n, 0, WIDTH, sums, 0);
    }
    return sums;
  }

  /** One tile of a matrix product over the whole inner width. */
  @Benchmark
  public MemorySegment tile() {
    long width = 4L * loops.tileColumns();
    loops.multiplyTile(
        x, 0, 4L * WIDTH, loops.tileRows(), WIDTH, w, 0, width / 2, width, start, tile, 0, width);
    return tile;
  }

  /** A tile's rows of queries against as many keys: scores, softmax, values. */
  @Benchmark
  public MemorySegment attentionTile() {
    int rows = loops.tileRows();
    long width = 4L * loops.tileColumns();
    long row = 4L * InnerLoops.KEYS;
    for (int j = 0; j < InnerLoops.KEYS; j += loops.tileColumns()) {
      loops.multiplyTile(
          x, 0, 4L * WIDTH, rows, HEAD, w, 0, width / 2, width, start, scores, 4L * j, row);
    }
    for (int m = 0; m < rows; m++) {
      float max = loops.scaleScores(scores, row * m, InnerLoops.KEYS, 0.125f, 0);
      loops.exponentials(scores, row * m, max, 1, lanes, 64L * m);
    }
    for (int c = 0; c < HEAD; c += loops.tileColumns()) {
      loops.multiplyTile(
          scores,
          0,
          row,
          rows,
          HEAD,
          w,
          4L * c,
          4L * c + width / 2,
          4L * HEAD,
          start,
          tile,
          0,
          width);
    }
    return tile;
  }
}
