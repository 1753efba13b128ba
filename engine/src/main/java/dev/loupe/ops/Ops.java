package dev.loupe.ops;

import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.function.Supplier;

/**
 * The hardware seam: every operation of a GPT-2 forward pass. The model is written once against it.
 *
 * <p>Letters: R rows of the pass, C width, H heads, D = C / H, V vocabulary. Matrices are [rows,
 * cols] row-major; sums are always f32. The residual stream, logits and attention maps are f32;
 * what lies between them is as {@link TensorArena#activations} makes it. On the CPU a row's result
 * depends on that row's own inputs alone, never on the rows beside it, the number of threads or the
 * size of the batch, so a prompt read at once and a prompt read token by token give the same bits.
 * Callers pass matching shapes; a backend checks them before native code or unchecked memory could
 * see them.
 */
public interface Ops extends AutoCloseable {
  /**
   * Refuses a model that there is no room for, before any of it is loaded; does nothing where that
   * can't be known.
   *
   * @param ownHead whether the head is not wte
   */
  default void requireRoom(Gpt2Config config, boolean ownHead) {}

  /** Likewise a session. */
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
   * x[r] = wte[id(r)] + wpe[position(r)]; wte [V, C], wpe [positions, C], x [R, C]. The first
   * operation of a pass.
   */
  void embed(Batch batch, Tensor wte, Tensor wpe, Tensor x);

  /** out[r] = (x[r] - mean) / sqrt(variance + epsilon) * weight + bias; x and out [R, C]. */
  void layerNorm(Tensor x, LayerNorm norm, Tensor out);

  /** out = f(x . W + b), f element by element; x [R, in], out [R, out]. */
  void linear(Tensor x, Linear w, Activation f, Tensor out);

  /**
   * The fused projection c_attn: qkv = x . W + b, and the rows' keys and values go to the cache,
   * each at its position; x [R, C], qkv [R, 3C] is that of {@code in}.
   */
  void qkv(Tensor x, Linear w, AttentionInput in);

  /** acc += x . W + b; x [R, in], acc [R, out]. */
  void linearResidual(Tensor x, Linear w, Tensor acc);

  /**
   * Attention of every head by one pass of online softmax over tiles of keys (Milakov and
   * Gimelshein, arXiv 1805.02867; Dao et al., FlashAttention, arXiv 2205.14135). No T x T memory.
   *
   * <p>y[r, h] = sum over keys j of softmax_j(scale q[r, h] . k[j, h]) v[j, h]; lse[r, h] is the
   * log of the softmax's denominator: log sum_j exp(scale q . k[j]).
   *
   * @param y [R, C]
   * @param lse [R, H]
   */
  void attention(AttentionInput in, Tensor y, Tensor lse);

  /**
   * Rebuilds rows of the attention matrix, which {@link #attention} does not keep: P[j] = exp(scale
   * q . k[j] - lse).
   *
   * @param heads which heads
   * @param firstRow first row of the batch
   * @param rows how many rows of the batch
   * @param out F32 or F16 [heads.length rows, at least as many columns as keys]: row i rows + r is
   *     head heads[i], batch row firstRow + r; columns beyond the keys that a row reads are
   *     undefined
   */
  void probabilities(
      AttentionInput in, Tensor lse, int[] heads, int firstRow, int rows, Tensor out);

  /** Like {@link #probabilities}, but the scores before the softmax: scale q . k[j]. */
  void scores(AttentionInput in, int[] heads, int firstRow, int rows, Tensor out);

  /**
   * How rows of the attention matrix are spread. Written to {@code out}, of each row: its entropy
   * -sum p log p in nats; its mean distance sum p (position - key) in tokens; the {@code top} keys
   * with the largest p, the largest first and the lower key first among equals, as numbers, -1
   * where a row has fewer; and their p, 0 where there are fewer.
   *
   * @param top 1 to 16
   * @param out F32 [heads.length rows, 2 + 2 top]
   */
  void statistics(
      AttentionInput in, Tensor lse, int[] heads, int firstRow, int rows, int top, Tensor out);

  /**
   * How many calls of these three may be made before their results are {@link #read}, so that they
   * come to the host while the backend goes on; each into memory of its own.
   */
  default int rebuildsAhead() {
    return 1;
  }

  /** out[r, v] = x[r] . head[v]; x [R, C], head of C to V, out [R, V]. */
  void logits(Tensor x, Weight head, Tensor out);

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
   * Decoding steps that run on the device, several ahead of the host; empty where the host chooses
   * each token itself, and then nothing is planned.
   */
  default Optional<Steps> steps(Supplier<StepPlan> plan) {
    return Optional.empty();
  }

  /** What it runs on, for people: e.g. {@code cpu, 512-bit vectors, 2 threads}. */
  String device();

  /** Bytes of the device's own memory that are in use, by whomever; empty where it has none. */
  default OptionalLong deviceBytesInUse() {
    return OptionalLong.empty();
  }

  @Override
  void close();
}
