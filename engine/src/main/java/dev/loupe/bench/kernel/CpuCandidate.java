package dev.loupe.bench.kernel;

import dev.loupe.Precision;
import dev.loupe.ops.LayerNorm;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.ops.cpu.CpuOps;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import org.jspecify.annotations.Nullable;

/**
 * A way to compute an operation on the CPU.
 *
 * @param textbook whether it is a textbook's loops, which make about an operation a nanosecond
 * @param backend what it computes with
 */
record CpuCandidate(
    String name,
    String idea,
    Precision precision,
    boolean textbook,
    CpuDevice device,
    CpuDevice.Backend backend,
    Kernel kernel)
    implements Candidate {
  static final ValueLayout.OfFloat F32 =
      ValueLayout.JAVA_FLOAT_UNALIGNED.withOrder(ByteOrder.LITTLE_ENDIAN);

  private static final double TEXTBOOK_OPERATIONS = 1e9; // a second
  private static final double MOST_SECONDS = 10;
  private static final long WARM_UP_NANOS = 300_000_000;
  private static final int GROUP = 64; // inputs that share a scale in int8

  /** Makes a computation of a problem. */
  @FunctionalInterface
  interface Kernel {
    /**
     * Takes over the inputs.
     *
     * @param ops what it computes with; textbook loops have no use for it
     * @param arena for what it needs
     * @param out its outputs, in the order of {@link Problem#outputs}
     * @return what computes them, any number of times
     */
    Runnable of(CpuOps ops, Problem problem, TensorArena arena, Tensor out);
  }

  @Override
  public String refuses(Shape shape) {
    long needed = bytes(shape);
    if (needed > device.room()) {
      return "needs %d MB, there are %d for it".formatted(needed >> 20, device.room() >> 20);
    }
    double seconds = work(shape).operations() / TEXTBOOK_OPERATIONS;
    return textbook && seconds > MOST_SECONDS
        ? "would take about %.0f seconds a run".formatted(seconds)
        : "";
  }

  /** About what a run takes: inputs in a layout of its own, outputs, and a head's scores. */
  private long bytes(Shape shape) {
    double bytes = 2 * Problem.Work.of(shape, Float.BYTES, Float.BYTES).bytes();
    if (textbook && shape.operation() == Operation.ATTENTION) {
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
    CpuOps ops = device.ops(backend, precision);
    TensorArena arena = ops.arena();
    try {
      Tensor out = output(problem.shape(), arena);
      Run run =
          new Run(ops, arena, out, kernel.of(ops, problem, arena, out), bytes(problem.shape()));
      run.compile();
      return run;
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
    private final CpuOps ops;
    private final TensorArena arena;
    private final Tensor out;
    private final Runnable kernel;
    private final long bytes;
    private final Tensor tiny;
    private final LayerNorm norm;

    Run(CpuOps ops, TensorArena arena, Tensor out, Runnable kernel, long bytes) {
      this.ops = ops;
      this.arena = arena;
      this.out = out;
      this.kernel = kernel;
      this.bytes = bytes;
      tiny = arena.allocate(backend.threads(), 1);
      norm = new LayerNorm(arena.allocate(1, 1), arena.allocate(1, 1), 1);
      device.take(bytes);
    }

    /** Runs with warm caches, or what takes a microsecond would be compiled much too late. */
    private void compile() {
      long start = System.nanoTime();
      do {
        kernel.run();
      } while (System.nanoTime() - start < WARM_UP_NANOS);
    }

    @Override
    public void poison() {
      out.data().fill((byte) 0xff); // every float of such bytes is a NaN
    }

    @Override
    public double microseconds() {
      device.coolCaches();
      ops.layerNorm(tiny, norm, tiny); // wakes threads that fell asleep: in a model they seldom do
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
