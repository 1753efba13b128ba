package dev.loupe.interpret;

import dev.loupe.attention.ValueNorms;
import dev.loupe.generate.OpenModel;
import dev.loupe.generate.ReadListener;
import dev.loupe.generate.ReadRequest;
import dev.loupe.generate.Token;
import dev.loupe.model.AblatedModel;
import dev.loupe.model.ModelInfo;
import dev.loupe.model.Reading;
import dev.loupe.model.Transformer;
import dev.loupe.ops.Attention;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Ops;
import dev.loupe.ops.Pass;
import dev.loupe.ops.RebuiltRows;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.sampling.Sampler;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.config.Gpt2Config;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.stream.IntStream;

/**
 * A text that was read in one pass, and of every layer what its attention worked on: queries, keys,
 * values, and the log-sum-exp of each row, from which any part of any map is rebuilt when somebody
 * looks at it. That takes memory linear in the text, where maps take its square.
 *
 * <p>For one thread at a time. Holds memory of the backend until closed.
 */
public final class ActivationCache implements AutoCloseable {
  /** Rows of logits made at a time. */
  private static final int LOGIT_ROWS = 32;

  /** What rows are rebuilt in at a time, unless one takes more. */
  private static final long CHUNK_BYTES = 8 << 20;

  private final Transformer model;
  private final Gpt2Config config;
  private final Mask mask;
  private final Batch batch;
  private final TensorArena arena;
  private final KvCache kv;
  private final Pass pass; // over copies of what the reading's pass made
  private final Tensor x; // [T, C]: the residual stream at the end
  private final Tensor normed; // [LOGIT_ROWS, C]
  private final Tensor logits; // [LOGIT_ROWS, V]
  private final List<Attention> attentions = new ArrayList<>(); // of each layer
  private final Tensor room; // for rows that are rebuilt
  private final float[] row; // of logits
  private final BitSet sayable;
  private final List<Token> tokens;
  private final int promptLength;
  private final ModelInfo info;
  private final OpenModel open;
  private final DerivedMaps derived;
  private int first = -1; // row of the text that the first row of logits is of

  private ActivationCache(
      OpenModel open, Transformer model, ReadRequest request, int logprobs, int[] ids) {
    this.model = model;
    this.open = open;
    Tokenizer tokenizer = open.tokenizer();
    info = open.info();
    config = model.config();
    sayable = tokenizer.ids();
    mask = request.mask();
    promptLength = request.prompt().lengthOf(ids.length);
    batch = Batch.sequence(0, 0, ids);
    int rows = Math.min(LOGIT_ROWS, ids.length);
    row = new float[config.vocabSize()];
    arena = model.ops().arena();
    try (Reading reading = new Reading(model, ids, rows, mask)) {
      kv = new KvCache(arena, config.nLayer(), config.nHead(), config.headDim(), 1, ids.length);
      x = arena.allocate(ids.length, config.nEmbd());
      normed = arena.activations(rows, config.nEmbd());
      logits = arena.allocate(rows, config.vocabSize());
      room = arena.allocate(1, Math.toIntExact(roomFor(ids.length, config.nHead()) / Float.BYTES));
      pass = model.begin(batch, kv, mask);
      reading.read(attention -> keep(attention, request.listener()));
      model.ops().copy(reading.activations().x(), x);
      tokens =
          logprobs < 0
              ? Token.of(tokenizer, request.prompt(), ids)
              : Token.of(tokenizer, request.prompt(), ids, logprobs, this::logits);
      derived = new DerivedMaps(this);
    } catch (Throwable e) {
      arena.close();
      throw e;
    }
  }

  /**
   * Reads a text and keeps what its attention worked on.
   *
   * @param logprobs how many likely tokens are named at each place, with every token's logprob and
   *     rank; negative for none of this
   * @throws IllegalArgumentException if the text is longer than the context, or the interventions
   *     do not fit the model
   * @throws CancellationException if the listener ended it
   */
  public static ActivationCache of(OpenModel model, ReadRequest request, int logprobs) {
    int[] ids = model.tokensToRead(request.prompt());
    return model.onFiles(
        () -> {
          if (request.interventions().none()) {
            return new ActivationCache(model, model.transformer(), request, logprobs, ids);
          }
          try (AblatedModel ablated = model.ablated(request.interventions(), request.prompt())) {
            return new ActivationCache(model, ablated.model(), request, logprobs, ids);
          }
        });
  }

  /** Bytes: at least a row of every head, and no more than there are rows. */
  private static long roomFor(int tokens, int heads) {
    long bytesOfRow = (long) Float.BYTES * heads * columns(tokens);
    return Math.clamp(CHUNK_BYTES, bytesOfRow, bytesOfRow * tokens);
  }

  /** Rows begin at multiples of 16 elements, so that kernels can write them by vectors. */
  private static int columns(int keys) {
    return Math.ceilDiv(keys, 16) * 16;
  }

  private void keep(Attention in, ReadListener listener) {
    Ops ops = model.ops();
    int layer = in.layer();
    Tensor qkv = arena.activations(in.qkv().rows(), in.qkv().cols());
    ops.copy(in.qkv(), qkv);
    Tensor lse = arena.allocate(in.lse().rows(), in.lse().cols());
    ops.copy(in.lse(), lse);
    ops.copy(in.kv().keys(layer), kv.keys(layer));
    ops.copy(in.kv().values(layer), kv.values(layer));
    attentions.add(pass.attention(layer, in.scale(), qkv, lse));
    if (!listener.reading(layer + 1, config.nLayer())) {
      throw new CancellationException("ended while reading the text");
    }
  }

  /** The ids of all tokens, which is what probabilities are of. */
  BitSet sayable() {
    return sayable;
  }

  /** What was read, and on what. */
  public ModelInfo model() {
    return info;
  }

  /** The text; with logprobs if they were asked for. */
  public List<Token> tokens() {
    return tokens;
  }

  /** How many of the tokens are the prompt's. */
  public int promptLength() {
    return promptLength;
  }

  /** Which keys a row reads. */
  public Mask mask() {
    return mask;
  }

  /** Number of layers. */
  public int layers() {
    return config.nLayer();
  }

  /** Heads of each layer. */
  public int heads() {
    return config.nHead();
  }

  /** How many keys the row of {@code query} has. */
  public int keys(int query) {
    return mask == Mask.CAUSAL ? query + 1 : tokens.size();
  }

  /**
   * Bytes that it holds, about: five rows of the width for each token and layer, and what rollout
   * and norms of values take once somebody asks for them.
   */
  public long bytes() {
    long t = tokens.size();
    long derived = config.nLayer() * (t * (t + 1) / 2 + t * config.nHead());
    return Float.BYTES * (t * (5L * config.nEmbd() * config.nLayer() + config.nEmbd()) + derived);
  }

  /**
   * Logits [V] of what follows token {@code at}; good until the next call.
   *
   * @throws dev.loupe.sampling.NotFiniteException if one is NaN or infinite
   */
  float[] logits(int at) {
    if (first < 0 || at < first || at >= first + logits.rows()) {
      first = at;
      int rows = Math.min(logits.rows(), x.rows() - at);
      model.logits(pass, x.rows(at, rows), normed.rows(0, rows), logits.rows(0, rows));
    }
    model.ops().read(logits, at - first, row, row.length);
    Sampler.requireFinite(row);
    return row;
  }

  /**
   * What {@code query} read in one head.
   *
   * @return as many as {@link #keys}, key 0 first
   * @throws IllegalArgumentException if there is no such layer, head or query
   */
  public float[] row(int layer, int head, int query) {
    float[] result = new float[keys(query)];
    rebuild(
        layer,
        new int[] {head},
        query,
        query + 1,
        (_, _, weights) -> System.arraycopy(weights, 0, result, 0, result.length));
    return result;
  }

  /**
   * Rebuilds rows of the maps of one layer.
   *
   * @param heads which heads
   * @param from first query
   * @param to one past the last query
   * @param sink gets each row once, in no order; its array is used again, and what lies beyond the
   *     row's keys means nothing
   * @throws IllegalArgumentException if there is no such layer, head or query
   */
  public void rebuild(int layer, int[] heads, int from, int to, AttentionRowConsumer sink) {
    requireHere(layer, heads, from, to);
    int keys = keys(to - 1);
    int columns = columns(keys);
    long bytesOfRow = (long) Float.BYTES * heads.length * columns;
    long fit = (long) Float.BYTES * room.cols() / bytesOfRow;
    int most = Math.clamp(fit, 1, to - from);
    float[] weights = new float[keys];
    for (int at = from; at < to; at += most) {
      int rows = Math.min(most, to - at);
      Tensor out = new Tensor(room.dtype(), heads.length * rows, columns, room.data());
      RebuiltRows rebuilt = attentions.get(layer).probabilities(heads, at, rows, out);
      for (int i = 0; i < heads.length * rows; i++) {
        int query = at + i % rows;
        rebuilt.read(i, weights, keys(query));
        sink.row(heads[i / rows], query, weights);
      }
    }
  }

  /**
   * Likewise, of maps of a kind. Rollout has one map a layer, which comes as that of head 0.
   *
   * @throws IllegalArgumentException also if rollout is asked for where all tokens read all, or
   *     value-weighted maps where the model's heads are cut otherwise than its weights say
   */
  public void rebuild(
      MapKind kind, int layer, int[] heads, int from, int to, AttentionRowConsumer sink) {
    requireHere(layer, heads, from, to);
    switch (kind) {
      case WEIGHTS -> rebuild(layer, heads, from, to, sink);
      case VALUE_WEIGHTED -> {
        if (heads() != open.config().nHead()) {
          throw new IllegalArgumentException(
              "value-weighted maps need the model's own %d heads, and this run has %d"
                  .formatted(open.config().nHead(), heads()));
        }
        derived.valueWeighted(layer, heads, from, to, this::norms, sink);
      }
      case ROLLOUT -> {
        if (mask != Mask.CAUSAL) {
          throw new IllegalArgumentException("rollout needs a run with the causal mask");
        }
        derived.rollout(layer, from, to, sink);
      }
    }
  }

  private void norms(int layer, ValueNorms.Listener listener) {
    List<Integer> all = IntStream.range(0, heads()).boxed().toList();
    ValueNorms norms = open.onFiles(open::valueNorms);
    norms.observe(model.ops(), attentions.get(layer), 0, tokens.size(), all, listener);
  }

  private void requireHere(int layer, int[] heads, int from, int to) {
    if (layer < 0 || layer >= layers()) {
      throw new IllegalArgumentException(
          "there is no layer %d: the model has layers 0..%d".formatted(layer, layers() - 1));
    }
    for (int head : heads) {
      if (head < 0 || head >= heads()) {
        throw new IllegalArgumentException(
            "there is no head %d: a layer has heads 0..%d".formatted(head, heads() - 1));
      }
    }
    if (from < 0 || to <= from || to > tokens.size()) {
      throw new IllegalArgumentException(
          "no rows %d to %d: the text has tokens 0..%d".formatted(from, to, tokens.size() - 1));
    }
  }

  @Override
  public void close() {
    pass.close();
    arena.close();
  }
}
