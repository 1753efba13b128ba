package dev.loupe.model;

import dev.loupe.ops.KvCache;
import dev.loupe.ops.SessionRoom;
import dev.loupe.ops.SessionSize;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.weights.config.Gpt2Config;
import org.jspecify.annotations.Nullable;

/**
 * The memory that forward passes of a model work in: a KV cache for some sequences, the activations
 * of one pass, and rows of logits. For one thread at a time.
 */
public final class Workspace implements AutoCloseable {
  private final SessionSize size;
  private final TensorArena arena;
  private final KvCache kv;
  private final Activations activations;
  private @Nullable Tensor logits; // once they are wanted

  private Workspace(SessionRoom room, int rows) {
    size = room.size();
    arena = room.arena();
    try {
      Gpt2Config config = size.config();
      kv =
          new KvCache(
              arena,
              config.nLayer(),
              config.nHead(),
              config.headDim(),
              size.samples(),
              size.positions());
      activations = Activations.allocate(arena, config, rows);
    } catch (Throwable e) {
      arena.close();
      throw e;
    }
  }

  /**
   * A workspace of exactly the given size.
   *
   * @param rows most rows of a pass
   * @throws dev.loupe.cuda.driver.GpuMemoryException if the GPU has no room for it
   */
  public static Workspace of(Transformer model, SessionSize size, int rows) {
    model.ops().requireRoom(size);
    return new Workspace(new SessionRoom(model.ops().arena(), size), rows);
  }

  /**
   * A workspace of at least the size {@code least}. Where there is room it has the size {@code
   * ample}, so that later sessions can use its memory again.
   *
   * @throws dev.loupe.cuda.driver.GpuMemoryException if the GPU has no room for {@code least}
   */
  public static Workspace of(Transformer model, SessionSize least, SessionSize ample) {
    SessionRoom room = model.session(least, ample);
    return new Workspace(room, room.size().rows());
  }

  /** What it was made for; larger than was asked where memory is shared with later sessions. */
  public SessionSize size() {
    return size;
  }

  /** Owns the memory; what else a session allocates in it is freed with this. */
  public TensorArena arena() {
    return arena;
  }

  /** Keys and values of all sequences. */
  public KvCache kv() {
    return kv;
  }

  /** Activations of a pass of as many rows as there may be. */
  public Activations activations() {
    return activations;
  }

  /** Logits [rows, V], as many rows as the size says, and one at least for each sequence. */
  public Tensor logits() {
    if (logits == null) {
      int rows = Math.max(size.logitRows(), size.samples());
      logits = arena.allocate(rows, size.config().vocabSize());
    }
    return logits;
  }

  /** Marks the session as successful, see {@link TensorArena#keep}. */
  public void keep() {
    arena.keep();
  }

  @Override
  public void close() {
    arena.close();
  }
}
