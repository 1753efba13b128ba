package dev.loupe.generate;

import dev.loupe.attention.AttentionRecorder;
import dev.loupe.attention.AttentionResult;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.model.Activations;
import dev.loupe.model.Transformer;
import dev.loupe.ops.AttentionHook;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Ops;
import dev.loupe.ops.Pass;
import dev.loupe.ops.SessionSize;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.text.Count;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.config.Gpt2Config;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.Queue;
import org.jspecify.annotations.Nullable;

/**
 * Reads texts, as many in each forward pass as a budget of tokens allows, so that short ones are
 * read about as fast as long ones. What comes of a text does not depend on those beside it. Texts
 * of like length make the best use of memory.
 *
 * <p>For one thread at a time; several readers of one model may read at once. Memory for a pass is
 * taken once and kept until this is closed, which comes before the model's end.
 */
public final class BatchReader implements AutoCloseable {
  /** Tokens of a pass that keep a CPU or a GPU busy without taking much memory. */
  public static final int DEFAULT_TOKENS = 1024;

  /** Most tokens that a pass may be given. */
  public static final int MOST_TOKENS = 1 << 20;

  /** Rows of logits made at a time. */
  private static final int LOGIT_ROWS = 64;

  /** Positions of the cache for each token of a pass: short texts take 64 of them each. */
  private static final int CELLS = 4;

  /**
   * What was found in one text.
   *
   * @param tokens how many it has
   * @param logprob sum of the natural logarithms of the probabilities of all tokens but the first;
   *     NaN if it was not asked for, or there is but one
   * @param heads what its heads did, if that was asked for
   * @param error why there is nothing of it; empty if there is
   */
  public record Result(
      int tokens, double logprob, Optional<HeadStatistics> heads, Optional<String> error) {
    private static Result failed(int tokens, String error) {
      return new Result(tokens, Double.NaN, Optional.empty(), Optional.of(error));
    }

    /** exp of minus the mean log-probability of the tokens that have one; NaN where none has. */
    public double perplexity() {
      return Math.exp(-logprob / (tokens - 1));
    }
  }

  private final Transformer model;
  private final Gpt2Config config;
  private final Tokenizer tokenizer;
  private final BitSet sayable;
  private final Optional<AttentionSelection> selection;
  private final boolean logprobs;
  private final int budget;
  private final TensorArena arena;
  private final Tensor keys; // [positions, C]
  private final Tensor values;
  private final Activations activations;
  private final Tensor logits; // [LOGIT_ROWS, V]
  private final float[] row; // of the residual stream
  private final AttentionPlan plan;
  private final @Nullable AttentionRecorder recorder;
  private List<AttentionResult> kept = List.of(); // of each text of the pass under way

  /**
   * @param attention what is wanted of the heads
   */
  public BatchReader(
      OpenModel open, Optional<AttentionSelection> attention, boolean logprobs, int tokens) {
    if (tokens < 1 || tokens > MOST_TOKENS) {
      throw new IllegalArgumentException(
          "%d tokens a pass: not 1 to %d".formatted(tokens, MOST_TOKENS));
    }
    model = open.transformer();
    tokenizer = open.tokenizer();
    sayable = tokenizer.ids();
    this.logprobs = logprobs;
    config = model.config();
    budget = Math.max(tokens, config.nPositions());
    selection = attention.map(AttentionSelection::headStatisticsOnly);
    plan = selection.orElse(AttentionSelection.all()).of(config);
    Ops ops = model.ops();
    long scratch =
        selection.isEmpty() ? 0 : AttentionRecorder.scratchBytes(ops, plan, config.nPositions());
    int logitRows = logprobs ? Math.min(LOGIT_ROWS, budget) : 1;
    ops.requireRoom(
        new SessionSize(config, budget, 1, logitRows, false, selection.map(any -> plan), scratch));
    arena = ops.arena();
    try {
      int cells = KvCache.rounded(CELLS * budget);
      keys = arena.activations(cells, config.nEmbd());
      values = arena.activations(cells, config.nEmbd());
      activations = Activations.allocate(arena, config, budget);
      logits = arena.allocate(logitRows, config.vocabSize());
      row = new float[config.nEmbd()];
      recorder =
          selection.isEmpty()
              ? null
              : new AttentionRecorder(
                  ops,
                  arena,
                  plan,
                  config.nPositions(),
                  config.nPositions(),
                  scratch,
                  open.valueNorms(selection),
                  s -> List.of(kept.get(s)));
    } catch (Throwable e) {
      arena.close();
      throw e;
    }
  }

  /**
   * Reads texts in their order, a pass at a time as results are asked for.
   *
   * @param texts ids of each; one that is empty, longer than the context, or holds an id outside
   *     the vocabulary gets a result with an error
   * @return a result for each text
   */
  public Iterator<Result> read(Iterator<int[]> texts) {
    return new Iterator<>() {
      private final Queue<Result> results = new ArrayDeque<>();
      private int @Nullable [] next; // did not fit in the pass before

      @Override
      public boolean hasNext() {
        return !results.isEmpty() || next != null || texts.hasNext();
      }

      @Override
      public Result next() {
        if (results.isEmpty()) {
          if (!hasNext()) {
            throw new NoSuchElementException();
          }
          results.addAll(pass(take()));
        }
        return results.remove();
      }

      // as many as fit in a pass; at least one
      private List<int[]> take() {
        List<int[]> pass = new ArrayList<>();
        int rows = 0;
        int longest = 0;
        while (next != null || texts.hasNext()) {
          int[] text = next != null ? next : texts.next();
          next = text;
          int length = Math.min(text.length, config.nPositions()); // a longer one is not read
          longest = Math.max(longest, KvCache.rounded(length));
          rows += length;
          if (!pass.isEmpty() && (rows > budget || (pass.size() + 1L) * longest > keys.rows())) {
            break;
          }
          pass.add(text);
          next = null;
        }
        return pass;
      }
    };
  }

  private List<Result> pass(List<int[]> texts) {
    List<@Nullable String> errors = new ArrayList<>();
    List<int[]> sound = new ArrayList<>();
    for (int[] text : texts) {
      String error = whyNot(text);
      errors.add(error);
      if (error == null) {
        sound.add(text);
      }
    }
    Iterator<Result> read = sound.isEmpty() ? List.<Result>of().iterator() : forward(sound);
    List<Result> results = new ArrayList<>();
    for (int i = 0; i < texts.size(); i++) {
      String error = errors.get(i);
      results.add(error == null ? read.next() : Result.failed(texts.get(i).length, error));
    }
    return results;
  }

  private @Nullable String whyNot(int[] text) {
    if (text.length == 0) {
      return "the text is empty";
    }
    if (text.length > config.nPositions()) {
      return "the text has %s and the model reads %d"
          .formatted(Count.of(text.length, "token"), config.nPositions());
    }
    for (int id : text) {
      if (!tokenizer.contains(id)) {
        return "token id %d is outside the vocabulary 0..%d".formatted(id, sayable.length() - 1);
      }
    }
    return null;
  }

  private Iterator<Result> forward(List<int[]> texts) {
    Batch batch = Batch.texts(texts);
    int longest = texts.stream().mapToInt(text -> text.length).max().orElseThrow();
    int sequences =
        keys.rows() / KvCache.rounded(longest); // few shapes: a GPU keeps what each takes
    KvCache kv =
        KvCache.ofOnePass(keys, values, config.nLayer(), config.nHead(), sequences, longest);
    Activations a = activations.rows(batch.rows());
    kept = new ArrayList<>();
    for (int[] text : texts) {
      AttentionResult of =
          selection
              .map(s -> AttentionResult.allocate(s, plan, text.length))
              .orElse(AttentionResult.NONE);
      of.tokens(text);
      kept.add(of);
    }
    double[] odds;
    try (Pass pass = model.begin(batch, kv, Mask.CAUSAL)) {
      model.forward(pass, a, recorder == null ? AttentionHook.NONE : recorder);
      if (recorder != null) {
        recorder.finish();
      }
      odds = logprobs ? logprobs(pass, a) : new double[0];
    }
    List<Result> results = new ArrayList<>();
    int first = 0;
    for (int s = 0; s < texts.size(); s++) {
      int length = texts.get(s).length;
      results.add(result(a, first, length, odds, kept.get(s)));
      first += length;
    }
    return results.iterator();
  }

  /** ln p of the token that follows each row; NaN at the end of a text. */
  private double[] logprobs(Pass pass, Activations a) {
    Batch batch = pass.batch();
    int rows = batch.rows();
    double[] all = new double[rows];
    for (int first = 0; first < rows; first += logits.rows()) {
      int count = Math.min(logits.rows(), rows - first);
      int[] ids = new int[count];
      for (int i = 0; i < count; i++) {
        int after = first + i + 1;
        boolean last = after == rows || batch.position(after) == 0;
        ids[i] = last ? -1 : batch.id(after);
      }
      double[] some = new double[count];
      Tensor out = logits.rows(0, count);
      model.logits(pass, a, first, out);
      model.ops().logprobs(out, ids, sayable, some);
      System.arraycopy(some, 0, all, first, count);
    }
    return all;
  }

  private Result result(
      Activations a, int first, int length, double[] odds, AttentionResult attention) {
    model.ops().read(a.x(), first + length - 1, row, row.length); // reads what all others hold
    for (float x : row) {
      if (!Float.isFinite(x)) {
        return Result.failed(length, "the model computes %s".formatted(x));
      }
    }
    double sum = odds.length == 0 || length == 1 ? Double.NaN : 0;
    for (int i = 0; odds.length > 0 && i < length - 1; i++) {
      if (!Double.isFinite(odds[first + i])) {
        return Result.failed(
            length, "the model computes %s as odds of token %d".formatted(odds[first + i], i + 1));
      }
      sum += odds[first + i];
    }
    return new Result(length, sum, attention.heads(), Optional.empty());
  }

  @Override
  public void close() {
    arena.close();
  }
}
