package dev.loupe.ops;

import dev.loupe.weights.config.Gpt2Config;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalLong;

/**
 * The hardware seam: memory, forward passes ({@link Pass} has their operations), and what brings
 * results to the host. The model is written once against it.
 */
public interface Ops extends AutoCloseable {
  /**
   * Refuses a session that there is no room for, before any of it is allocated; does nothing where
   * that can't be known.
   */
  default void requireRoom(SessionSize size) {}

  /** Why a model of this shape can't run here; empty if it can. */
  default Optional<String> whyNot(Gpt2Config config) {
    return Optional.empty();
  }

  /** A new lifetime for tensors: one per model, one per session. */
  TensorArena arena();

  /**
   * Memory for a session. Where a backend keeps that of sessions that ended ({@link
   * TensorArena#keep}), it may be one of theirs.
   *
   * @param model memory of the weights that the session reads
   * @param least size that it needs
   * @param ample size that it is given where there is room for that, so that others can follow it
   * @throws dev.loupe.cuda.driver.GpuMemoryException if there is no room
   */
  default SessionRoom session(TensorArena model, SessionSize least, SessionSize ample) {
    requireRoom(least);
    return new SessionRoom(arena(), least);
  }

  /**
   * Begins a pass. It makes room in the cache for the rows, whose keys and values follow layer by
   * layer.
   *
   * @throws IllegalArgumentException if a row does not follow the positions that are filled, or
   *     lies beyond the capacity; then the cache is as it was
   * @throws IllegalStateException if another pass over the cache is open
   */
  Pass begin(Batch batch, KvCache kv, Mask mask);

  /**
   * How many {@link RebuiltRows} may be under way, so that they come to the host while the backend
   * goes on; each in memory of its own.
   */
  default int rebuildsAhead() {
    return 1;
  }

  /**
   * Natural logarithms of probabilities: out[r] = x[r, ids[r]] - log sum_v exp(x[r, v]) over the
   * tokens v that can be said; NaN where ids[r] is negative.
   *
   * @param x logits [R, V]; those of other rows of the vocabulary become -infinity
   * @param ids R tokens, of those that can be said
   * @param sayable the tokens that can be said
   * @param out R numbers
   */
  void logprobs(Tensor x, int[] ids, BitSet sayable, double[] out);

  /**
   * The gaps of a set among 0 .. n - 1.
   *
   * @return first and one past the last of each
   */
  static List<int[]> gaps(BitSet set, int n) {
    List<int[]> gaps = new ArrayList<>();
    for (int from = set.nextClearBit(0); from < n; ) {
      int next = set.nextSetBit(from);
      int to = next < 0 ? n : Math.min(next, n);
      gaps.add(new int[] {from, to});
      from = set.nextClearBit(to);
    }
    return gaps;
  }

  /** Copies the elements of {@code from} to {@code to}, which has the same shape. */
  void copy(Tensor from, Tensor to);

  /** Brings one row to the host: into[0 .. count - 1] = the first {@code count} columns. */
  void read(Tensor from, int row, float[] into, int count);

  /**
   * Brings numbers from the host, rounded to what {@code to} holds: its elements, row by row, are
   * the first ones of {@code from}.
   */
  void write(float[] from, Tensor to);

  /**
   * Whether passes may have rows of several runs: then a row's bits are those that it has alone.
   * Otherwise a pass has the rows of one run, and a prompt is read at once.
   */
  default boolean mixesRuns() {
    return true;
  }

  /** Whether the device can choose tokens itself, by {@link #steps}. */
  default boolean hasSteps() {
    return false;
  }

  /**
   * Decoding steps that run on the device, several ahead of the host.
   *
   * @throws UnsupportedOperationException if it {@linkplain #hasSteps has none}
   */
  default Steps steps(StepPlan plan) {
    throw new UnsupportedOperationException("the host chooses the tokens");
  }

  /** What it runs on, for people: e.g. {@code cpu, 512-bit vectors, 2 threads}. */
  String device();

  /** Bytes of the device's own memory that are in use, by whomever; empty where it has none. */
  default OptionalLong deviceBytesInUse() {
    return OptionalLong.empty();
  }

  /** Kernels that a decoding step launches, as the last one that was new; empty on the CPU. */
  default OptionalLong launchesOfStep() {
    return OptionalLong.empty();
  }

  /**
   * Bytes a second that the device reads and writes at best while it copies its own memory,
   * measured now; empty where it has none.
   */
  default OptionalDouble copyBytesPerSecond() {
    return OptionalDouble.empty();
  }

  @Override
  void close();
}
