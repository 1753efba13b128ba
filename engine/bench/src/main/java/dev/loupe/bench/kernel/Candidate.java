package dev.loupe.bench.kernel;

import dev.loupe.ops.Precision;
import org.jspecify.annotations.Nullable;

/** A way to compute an operation on a device. */
public interface Candidate {
  /** Short, one word: {@code tiled-512}, {@code v3}, {@code cublas}. */
  String name();

  /** What it does that the one before it does not; one line. */
  String idea();

  /** What it computes in; on the CPU that of the weights, activations being f32 there. */
  Precision precision();

  /** Why it does not take a shape, in a few words; empty if it does. */
  String refuses(Shape shape);

  /** What a shape costs at least in the types that it keeps numbers in. */
  Problem.Work work(Shape shape);

  /**
   * Allocates what it needs and takes over the inputs.
   *
   * @throws OutOfMemoryError or GpuMemoryException if there is no room for them
   * @throws IllegalArgumentException if it does not take the shape, for a reason that {@link
   *     #refuses} does not know
   */
  Run prepare(Problem problem);

  /** A candidate with its inputs in place. */
  interface Run extends AutoCloseable {
    /** Has its code compiled, where that happens as it runs; takes so long at most, about. */
    default void compile(long nanos) {}

    /** Makes every output NaN, so that what is not written is seen. */
    void poison();

    /** Runs once with cold caches: microseconds of the operation alone. */
    double microseconds();

    /** An output of the last run, by its index in {@link Problem}. */
    float output(long index);

    /** What a launch takes of a multiprocessor; null on the CPU and where nobody says. */
    @Nullable Resources resources();

    @Override
    void close();
  }

  /**
   * What a launch takes of a multiprocessor of a GPU.
   *
   * @param registers of a thread
   * @param sharedBytes of a block, static and dynamic
   * @param threads of a block
   * @param occupancy warps that are resident at once, of those there is room for, 0 to 1
   */
  record Resources(int registers, int sharedBytes, int threads, double occupancy) {}
}
