package dev.loupe.model;

import dev.loupe.ops.AttentionHook;
import dev.loupe.ops.Batch;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Pass;
import dev.loupe.ops.SessionSize;
import dev.loupe.ops.TensorArena;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/** A text to be read in one pass, of which nothing is written: its cache and scratch. */
public final class Reading implements AutoCloseable {
  private final Transformer model;
  private final int[] ids;
  private final Mask mask;
  private final Workspace workspace;
  private final Activations a;
  private @Nullable Pass pass; // once it was read

  /**
   * @param ids at least one, and no more than the context holds
   * @param logitRows most rows of logits that will be made at a time, in {@link #arena}
   */
  public Reading(Transformer model, int[] ids, int logitRows) {
    this(
        model,
        ids,
        Mask.CAUSAL,
        Workspace.of(
            model,
            size(model, ids.length, logitRows),
            size(model, SessionSize.kept(ids.length, model.config().nPositions()), logitRows)));
  }

  /** Likewise, with a cache that has no more positions than it must: for somebody to copy. */
  public Reading(Transformer model, int[] ids, int logitRows, Mask mask) {
    this(model, ids, mask, Workspace.of(model, size(model, ids.length, logitRows), ids.length));
  }

  private Reading(Transformer model, int[] ids, Mask mask, Workspace workspace) {
    this.model = model;
    this.ids = ids;
    this.mask = mask;
    this.workspace = workspace;
    a = workspace.activations().rows(ids.length);
  }

  private static SessionSize size(Transformer model, int positions, int logitRows) {
    return new SessionSize(model.config(), positions, 1, logitRows, false, Optional.empty(), 0);
  }

  /** For what else is needed; it goes with this. */
  public TensorArena arena() {
    return workspace.arena();
  }

  /** What the pass writes on its way, a row for each token. */
  public Activations activations() {
    return a;
  }

  /** Reads, maybe again; {@code hook} sees each layer before its c_proj. */
  public void read(AttentionHook hook) {
    end();
    workspace.kv().truncate(0, 0);
    pass = model.begin(Batch.sequence(0, 0, ids), workspace.kv(), mask);
    model.forward(pass, a, hook);
  }

  /**
   * The pass, for what is to be made of its residual stream; good until the text is read again.
   *
   * @throws IllegalStateException if the text was not read
   */
  public Pass pass() {
    if (pass == null) {
      throw new IllegalStateException("the text was not read");
    }
    return pass;
  }

  private void end() {
    if (pass != null) {
      pass.close();
      pass = null;
    }
  }

  /** Tells that it was read as it should, see {@link TensorArena#keep}. */
  public void keep() {
    workspace.keep();
  }

  @Override
  public void close() {
    end();
    workspace.close();
  }
}
