package dev.loupe.bench.kernel;

import dev.loupe.ops.Precision;
import java.util.List;

/** What candidates run on. */
public interface Device extends AutoCloseable {
  /** {@code cpu} or {@code cuda}. */
  String backend();

  /** For people: the card, or the CPU's vectors and threads. */
  String name();

  /** Whether times here say nothing of such a device. */
  boolean emulated();

  /**
   * The ladder of an operation in one precision: from the plainest way to the best, each with an
   * idea more than the one before; empty where it has none.
   */
  List<Candidate> candidates(Operation operation, Precision precision);

  /**
   * The ladder once for each size of a block of threads, {@code v1@128}; who has its size compiled
   * in says so by refusing. Empty where there are no blocks, as on a CPU.
   */
  default List<Candidate> sweep(Operation operation, Precision precision) {
    return List.of();
  }

  /** Shapes to compare on unless others are asked for, those of GPT-2 124M. */
  List<Shape> usualShapes(Operation operation);

  /** How fast it is now at best. Measures for about a second. */
  Roofline measure(Precision precision);

  /**
   * The two ceilings of a device (Williams, Waterman and Patterson, Roofline, CACM 52(4), 2009);
   * NaN where nothing can measure them, on a CPU without the Vector API.
   *
   * @param bytesPerSecond that memory gives
   * @param operationsPerSecond of a large product, or of multiply-adds from registers; a
   *     multiply-add is two
   */
  record Roofline(double bytesPerSecond, double operationsPerSecond) {
    /** What work of so many operations a byte can reach at most. */
    public double operationsPerSecond(double intensity) {
      return Math.min(operationsPerSecond, intensity * bytesPerSecond);
    }

    /** The better of both in each: what else ran on the machine only took away. */
    public Roofline orBetter(Roofline other) {
      return new Roofline(
          Math.max(bytesPerSecond, other.bytesPerSecond),
          Math.max(operationsPerSecond, other.operationsPerSecond));
    }
  }

  @Override
  void close();
}
