package dev.loupe.bench.kernel;

import dev.loupe.ops.Precision;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import java.lang.foreign.ValueLayout;
import java.lang.management.CompilationMXBean;
import java.lang.management.ManagementFactory;
import java.nio.ByteOrder;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * A way to compute an operation on the CPU.
 *
 * @param backend what it computes with
 * @param textbook loops to compute with instead, which make about an operation a nanosecond
 */
record CpuCandidate(
    String name,
    String idea,
    Precision precision,
    CpuDevice device,
    CpuDevice.Key backend,
    @Nullable Textbook textbook)
    implements Candidate {
  static final ValueLayout.OfFloat F32 =
      ValueLayout.JAVA_FLOAT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

  private static final double TEXTBOOK_OPERATIONS = 1e9; // a second
  private static final double MOST_SECONDS = 10;
  private static final CompilationMXBean COMPILER = ManagementFactory.getCompilationMXBean();
  private static final int CALM_WINDOWS = 4;
  private static final long WINDOW_NANOS = 100_000_000;
  private static final long PAUSE_NANOS = 20_000_000;
  private static final int GROUP = 64; // inputs that share a scale in int8

  /** A textbook's loops for a problem. */
  @FunctionalInterface
  interface Textbook {
    /**
     * Takes over the inputs.
     *
     * @param out the outputs, in the order of {@link Problem#outputs}
     * @return what computes them, any number of times
     */
    Runnable of(Problem problem, Tensor out);
  }

  @Override
  public String refuses(Shape shape) {
    long needed = bytes(shape);
    if (needed > device.room()) {
      return "needs %d MB, there are %d for it".formatted(needed >> 20, device.room() >> 20);
    }
    double seconds = work(shape).operations() / TEXTBOOK_OPERATIONS;
    return textbook != null && seconds > MOST_SECONDS
        ? "would take about %.0f seconds a run".formatted(seconds)
        : "";
  }

  /** About what a run takes: inputs in a layout of its own, outputs, and a head's scores. */
  private long bytes(Shape shape) {
    double bytes = 2 * Problem.Work.of(shape, Float.BYTES, Float.BYTES).bytes();
    if (textbook != null && shape.operation() == Operation.ATTENTION) {
      bytes += (double) Float.BYTES * shape.size("T") * shape.size("T");
    }
    return (long) bytes;
  }

  @Override
  public Problem.Work work(Shape shape) {
    double weightBytes =
        switch (precision) {
          case F32 -> Float.BYTES;
          case F16, BF16 -> Short.BYTES;
          case INT8 -> {
            int inputs = shape.size("K");
            yield 1 + (double) Float.BYTES * Math.ceilDiv(inputs, GROUP) / inputs;
          }
        };
    return Problem.Work.of(shape, Float.BYTES, weightBytes);
  }

  @Override
  public Candidate.Run prepare(Problem problem) {
    CpuBackend computing = device.open(backend);
    TensorArena arena = computing.arena();
    try {
      Tensor out = output(problem.shape(), arena);
      Runnable kernel =
          textbook == null ? computing.kernel(problem, arena, out) : textbook.of(problem, out);
      return new Run(computing, arena, out, kernel, bytes(problem.shape()));
    } catch (RuntimeException | Error e) {
      arena.close();
      throw e;
    }
  }

  private static Tensor output(Shape shape, TensorArena arena) {
    int rows = shape.sizes().getFirst();
    return switch (shape.operation()) {
      case ATTENTION -> arena.allocate(rows, shape.size("H") * shape.size("D"));
      case DECODE_ATTENTION -> arena.allocate(1, shape.size("H") * shape.size("D"));
      case MAP -> arena.allocate(shape.size("H") * rows, rows);
      case LINEAR -> arena.allocate(rows, shape.size("N"));
      case LAYERNORM, SOFTMAX, GELU -> arena.allocate(rows, shape.size("C"));
    };
  }

  private final class Run implements Candidate.Run {
    private final CpuBackend computing;
    private final TensorArena arena;
    private final Tensor out;
    private final Runnable kernel;
    private final long bytes;

    Run(CpuBackend computing, TensorArena arena, Tensor out, Runnable kernel, long bytes) {
      this.computing = computing;
      this.arena = arena;
      this.out = out;
      this.kernel = kernel;
      this.bytes = bytes;
      device.take(bytes);
    }

    /**
     * Runs with warm caches, or what takes a microsecond would be compiled much too late, until for
     * a while the compiler had nothing to do and no run was faster. It gets a pause now and then:
     * two threads that spin leave it nothing of two processors.
     */
    @Override
    public void compile(long nanos) {
      long end = System.nanoTime() + nanos;
      long best = Long.MAX_VALUE;
      int calm = 0;
      while (calm < CALM_WINDOWS && System.nanoTime() < end) {
        long compiled = COMPILER.getTotalCompilationTime();
        long fastest = fastest(Math.min(end, System.nanoTime() + WINDOW_NANOS));
        LockSupport.parkNanos(PAUSE_NANOS);
        boolean still = compiled == COMPILER.getTotalCompilationTime();
        calm = still && fastest > best - best / 20 ? calm + 1 : 0;
        best = Math.min(best, fastest);
      }
    }

    /** The fastest run until then; at least one is made. */
    private long fastest(long end) {
      long fastest = Long.MAX_VALUE;
      long start = System.nanoTime();
      do {
        kernel.run();
        long now = System.nanoTime();
        fastest = Math.min(fastest, now - start);
        start = now;
      } while (start < end);
      return fastest;
    }

    @Override
    public void poison() {
      out.data().fill((byte) 0xff); // every float of such bytes is a NaN
    }

    @Override
    public double microseconds() {
      device.coolCaches();
      computing.wake(); // in a model threads seldom fall asleep
      long start = System.nanoTime();
      kernel.run();
      return (System.nanoTime() - start) / 1e3;
    }

    @Override
    public float output(long index) {
      return out.data().get(F32, Float.BYTES * index);
    }

    @Override
    public @Nullable Resources resources() {
      return null;
    }

    @Override
    public void close() {
      device.take(-bytes);
      arena.close();
    }
  }
}
