package dev.loupe.model;

import dev.loupe.ops.Attention;
import dev.loupe.ops.AttentionHook;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.LayerNorm;
import dev.loupe.ops.Linear;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Normed;
import dev.loupe.ops.Ops;
import dev.loupe.ops.Pass;
import dev.loupe.ops.SessionRoom;
import dev.loupe.ops.SessionSize;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.ops.Weight;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.io.Progress;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

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
   * Begins a pass over the rows of a batch, see {@link Ops#begin}.
   *
   * @throws IllegalArgumentException if an id is outside the vocabulary, or a position outside the
   *     context or not the next of its sequence; then the cache is as it was
   */
  public Pass begin(Batch batch, KvCache kv, Mask mask) {
    check(batch);
    return ops.begin(batch, kv, mask);
  }

  /**
   * Reads the rows of a pass and leaves the residual stream after the last block in {@code a.x()},
   * for {@link #logits}.
   */
  public void forward(Pass pass, Activations a, AttentionHook hook) {
    embed(pass, a);
    for (Block block : blocks) {
      hook.observe(block.attend(pass, a)); // the branch; AttentionHook.NONE does nothing
      block.addAttention(pass, a);
      block.addMlp(pass, a);
    }
  }

  /** The first step of a pass: a.x() = what the embeddings say of each token. */
  public void embed(Pass pass, Activations a) {
    pass.embed(wte, wpe, a.x());
  }

  /** A layer's first step: a.y() = what its heads make of a.x(). */
  public void attend(Pass pass, Activations a, int layer) {
    Attention _ = blocks.get(layer).attend(pass, a);
  }

  /** Its second step: the heads' part, a.y() times c_proj, is added to a.x(). */
  public void addAttention(Pass pass, Activations a, int layer) {
    blocks.get(layer).addAttention(pass, a);
  }

  /** Its last step: what the MLP makes of a.x() is added to it. */
  public void addMlp(Pass pass, Activations a, int layer) {
    blocks.get(layer).addMlp(pass, a);
  }

  /**
   * Logits of the rows {@code first .. first + out.rows() - 1} of a pass that was read.
   *
   * @param out [rows, V]
   */
  public void logits(Pass pass, Activations a, int first, Tensor out) {
    logits(pass, a.x().rows(first, out.rows()), a.h().rows(first, out.rows()), out);
  }

  /**
   * Logits of the rows that the pass's batch wants them of, in their order.
   *
   * @param out [batch.wantedRows(), V]
   */
  public void logits(Pass pass, Activations a, Tensor out) {
    Batch batch = pass.batch();
    int n = 0;
    for (int r = 0; r < batch.rows(); ) {
      int rows = 0; // neighbours, whose norms are packed together
      while (r + rows < batch.rows() && batch.wantsLogits(r + rows)) {
        rows++;
      }
      if (rows > 0) {
        finalNorm(pass, a.x().rows(r, rows), a.h().rows(n, rows));
        n += rows;
      }
      r += Math.max(rows, 1);
    }
    pass.logits(a.h().rows(0, n), head, out);
  }

  /**
   * The last layer norm of any rows of a residual stream, which the head is multiplied with.
   *
   * @param x [rows, C]
   * @param h [rows, C] of activations
   */
  public void finalNorm(Pass pass, Tensor x, Tensor h) {
    pass.layerNorm(x, lnF, h);
  }

  /**
   * Logits of any rows of a residual stream.
   *
   * @param x [rows, C]
   * @param h [rows, C] of activations: room for its layer norm
   * @param out [rows, V]
   */
  public void logits(Pass pass, Tensor x, Tensor h, Tensor out) {
    pass.logits(new Normed(x, lnF, h), head, out);
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

  /**
   * One transformer block: attention, then an MLP, each after a layer norm and added to the
   * residual stream (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019).
   */
  private static final class Block {
    private final BlockWeights w;
    private final int layer;
    private final float scale;
    private final Activation activation;

    Block(BlockWeights weights, Gpt2Config config, int layer) {
      this.w = weights;
      this.layer = layer;
      this.scale = config.attentionScale(layer);
      this.activation = config.activation();
    }

    /** The same, its heads cut as {@code config} says, with another c_proj unless it is null. */
    Block variant(Gpt2Config config, @Nullable Linear cProj) {
      BlockWeights weights =
          cProj == null
              ? w
              : new BlockWeights(w.ln1(), w.cAttn(), cProj, w.ln2(), w.cFc(), w.mlpCProj());
      return new Block(weights, config, layer);
    }

    /**
     * Attends with the rows of a pass.
     *
     * @param a holds the residual stream x [R, C], and room for what lies between
     * @return what a hook may look at; it cannot change it
     */
    Attention attend(Pass pass, Activations a) {
      Attention attention = pass.attention(layer, scale, a.qkv(), a.lse());
      // [R, 3C]  fused Q, K, V of ln_1(x); K and V to the cache
      attention.project(new Normed(a.x(), w.ln1(), a.h()), w.cAttn());
      attention.attend(a.y()); // [R, C], log-sum-exp [R, H]
      return attention;
    }

    void addAttention(Pass pass, Activations a) {
      pass.linearResidual(a.y(), w.cProj(), a.x()); // x += y . W + b
    }

    void addMlp(Pass pass, Activations a) {
      // [R, n_inner]  f(ln_2(x) . W + b)
      pass.linear(new Normed(a.x(), w.ln2(), a.h()), w.cFc(), activation, a.inner());
      pass.linearResidual(a.inner(), w.mlpCProj(), a.x()); // x += inner . W + b
    }
  }
}
