package dev.loupe.model;

import dev.loupe.ops.AttentionHook;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.LayerNorm;
import dev.loupe.ops.Linear;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Ops;
import dev.loupe.ops.SessionRoom;
import dev.loupe.ops.SessionSize;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.ops.Weight;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.io.Progress;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * GPT-2: token and position embedding, L blocks, a last layer norm, and the head that turns a row
 * of the residual stream into logits. Weights live as long as this object and are shared by all
 * sessions.
 */
public final class Transformer implements AutoCloseable {
  private final Gpt2Config config;
  private final Ops ops;
  private final TensorArena arena;
  private final Tensor wte; // wte.weight [V, C]
  private final Tensor wpe; // wpe.weight [n_positions, C]
  private final List<Block> blocks = new ArrayList<>();
  private final LayerNorm lnF; // ln_f
  private final boolean variant; // its weights are not all of `arena`
  private final Weight head; // lm_head.weight [V, C], or wte where the head is tied

  /** The model of {@code checkpoint}, which must stay open as long as this model. */
  public Transformer(Checkpoint checkpoint, Ops ops) {
    this(checkpoint, ops, Progress.NONE);
  }

  /**
   * @param progress hears how many layers the backend has taken
   */
  public Transformer(Checkpoint checkpoint, Ops ops, Progress progress) {
    this(checkpoint, checkpoint.config(), ops, progress);
  }

  /**
   * @param config that of the checkpoint, maybe with fewer layers: then its first ones
   */
  public Transformer(Checkpoint checkpoint, Gpt2Config config, Ops ops, Progress progress) {
    this.config = config;
    this.ops = ops;
    this.arena = ops.arena();
    variant = false;
    try {
      wte = arena.table(checkpoint.tensor("wte.weight"));
      wpe = arena.table(checkpoint.tensor("wpe.weight"));
      for (int layer = 0; layer < config.nLayer(); layer++) {
        progress.report(layer, config.nLayer());
        blocks.add(new Block(BlockWeights.load(checkpoint, arena, layer), config, layer));
      }
      lnF = BlockWeights.layerNorm(checkpoint, arena, "ln_f");
      boolean tied = !checkpoint.has("lm_head.weight");
      head =
          arena.head(checkpoint.tensor(tied ? "wte.weight" : "lm_head.weight"), tied ? wte : null);
      arena.loaded();
      progress.report(config.nLayer(), config.nLayer());
    } catch (Throwable e) {
      arena.close();
      throw e;
    }
  }

  private Transformer(Transformer other, Gpt2Config config, Map<Integer, Linear> cProj) {
    this.config = config;
    ops = other.ops;
    arena = other.arena;
    variant = true;
    wte = other.wte;
    wpe = other.wpe;
    lnF = other.lnF;
    head = other.head;
    for (int layer = 0; layer < config.nLayer(); layer++) {
      blocks.add(other.blocks.get(layer).variant(config, cProj.get(layer)));
    }
  }

  /**
   * The same weights, cut into the heads of {@code config}, and with another output projection in
   * some layers. It lives as long as this model and those projections, and is not closed.
   *
   * @param cProj by layer
   */
  public Transformer variant(Gpt2Config config, Map<Integer, Linear> cProj) {
    return new Transformer(this, config, cProj);
  }

  public Gpt2Config config() {
    return config;
  }

  public Ops ops() {
    return ops;
  }

  /**
   * Memory for a session of this model, see {@link Ops#session}.
   *
   * @throws dev.loupe.cuda.driver.GpuMemoryException if there is no room
   */
  public SessionRoom session(SessionSize least, SessionSize ample) {
    if (variant) { // lives for one run: nobody comes after it
      ops.requireRoom(least);
      return new SessionRoom(ops.arena(), least);
    }
    return ops.session(arena, least, ample);
  }

  /**
   * Reads the rows of {@code batch} and leaves the residual stream after the last block in {@code
   * a.x()}, for {@link #logits}.
   *
   * @throws IllegalArgumentException if an id is outside the vocabulary, or a position outside the
   *     context or not the next of its sequence
   */
  public void forward(Batch batch, KvCache kv, Activations a, Mask mask, AttentionHook hook) {
    check(batch);
    kv.extend(batch);
    ops.embed(batch, wte, wpe, a.x());
    for (Block block : blocks) {
      block.forward(ops, a, batch, kv, mask, hook);
    }
  }

  /**
   * Logits of the rows {@code first .. first + out.rows() - 1} of the last pass.
   *
   * @param out [rows, V]
   */
  public void logits(Activations a, int first, Tensor out) {
    logits(a.x().rows(first, out.rows()), a.h().rows(first, out.rows()), out);
  }

  /**
   * Logits of the rows of the last pass that {@code batch} wants them of, in their order.
   *
   * @param out [batch.wantedRows(), V]
   */
  public void logits(Batch batch, Activations a, Tensor out) {
    int n = 0;
    for (int r = 0; r < batch.rows(); ) {
      int rows = 0; // neighbours, whose norms are packed together
      while (r + rows < batch.rows() && batch.wantsLogits(r + rows)) {
        rows++;
      }
      if (rows > 0) {
        finalNorm(a.x().rows(r, rows), a.h().rows(n, rows));
        n += rows;
      }
      r += Math.max(rows, 1);
    }
    ops.logits(a.h().rows(0, n), head, out);
  }

  /**
   * The last layer norm of any rows of a residual stream, which the head is multiplied with.
   *
   * @param x [rows, C]
   * @param h [rows, C] of activations
   */
  public void finalNorm(Tensor x, Tensor h) {
    ops.layerNorm(x, lnF, h);
  }

  /**
   * Logits of any rows of a residual stream.
   *
   * @param x [rows, C]
   * @param h [rows, C] of activations: receives its layer norm
   * @param out [rows, V]
   */
  public void logits(Tensor x, Tensor h, Tensor out) {
    finalNorm(x, h);
    ops.logits(h, head, out);
  }

  private void check(Batch batch) {
    for (int r = 0; r < batch.rows(); r++) {
      if (batch.id(r) < 0 || batch.id(r) >= config.vocabSize()) {
        throw new IllegalArgumentException(
            "token id %d is outside the vocabulary 0..%d"
                .formatted(batch.id(r), config.vocabSize() - 1));
      }
      if (batch.position(r) >= config.nPositions()) {
        throw new IllegalArgumentException(
            "position %d: the model reads %d tokens"
                .formatted(batch.position(r), config.nPositions()));
      }
    }
  }

  @Override
  public void close() {
    arena.close();
  }
}
