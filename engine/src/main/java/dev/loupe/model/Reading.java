package dev.loupe.model;

import dev.loupe.ops.AttentionTap;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Mask;
import dev.loupe.ops.SessionRoom;
import dev.loupe.ops.SessionSize;
import dev.loupe.ops.TensorArena;
import dev.loupe.weights.Gpt2Config;
import java.util.Optional;

/** A text to be read in one pass, of which nothing is written: its cache and scratch. */
public final class Reading implements AutoCloseable {
  private final Transformer model;
  private final int[] ids;
  private final Mask mask;
  private final TensorArena arena;
  private final KvCache kv;
  private final Activations a;

  /**
   * @param ids at least one, and no more than the context holds
   * @param logitRows most rows of logits that will be made at a time, in {@link #arena}
   */
  public Reading(Transformer model, int[] ids, int logitRows) {
    this(model, ids, Mask.CAUSAL, room(model, ids, logitRows));
  }

  /** Likewise, with a cache that has no more positions than it must: for somebody to copy. */
  public Reading(Transformer model, int[] ids, int logitRows, Mask mask) {
    this(model, ids, mask, exactRoom(model, ids, logitRows));
  }

  private Reading(Transformer model, int[] ids, Mask mask, SessionRoom room) {
    this.model = model;
    this.ids = ids;
    this.mask = mask;
    Gpt2Config config = model.config();
    int positions = room.size().positions();
    arena = room.arena();
    try {
      kv = new KvCache(arena, config.nLayer(), config.nHead(), config.headDim(), 1, positions);
      a = Activations.allocate(arena, config, positions).rows(ids.length);
    } catch (Throwable e) {
      arena.close();
      throw e;
    }
  }

  private static SessionRoom room(Transformer model, int[] ids, int logitRows) {
    int kept = SessionSize.kept(ids.length, model.config().nPositions());
    return model.session(size(model, ids.length, logitRows), size(model, kept, logitRows));
  }

  private static SessionRoom exactRoom(Transformer model, int[] ids, int logitRows) {
    SessionSize size = size(model, ids.length, logitRows);
    model.ops().requireRoom(size);
    return new SessionRoom(model.ops().arena(), size);
  }

  private static SessionSize size(Transformer model, int positions, int logitRows) {
    return new SessionSize(model.config(), positions, 1, logitRows, false, Optional.empty(), 0);
  }

  /** For what else is needed; it goes with this. */
  public TensorArena arena() {
    return arena;
  }

  /** What the pass writes on its way, a row for each token. */
  public Activations activations() {
    return a;
  }

  /** Reads; {@code tap} sees each layer before its c_proj. */
  public void read(AttentionTap tap) {
    kv.truncate(0, 0); // it may be read again
    model.forward(Batch.sequence(0, 0, ids), kv, a, mask, tap);
  }

  /** Tells that it was read as it should, see {@link TensorArena#keep}. */
  public void keep() {
    arena.keep();
  }

  @Override
  public void close() {
    arena.close();
  }
}
