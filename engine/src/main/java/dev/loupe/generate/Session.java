package dev.loupe.generate;

import dev.loupe.attention.AttentionRecorder;
import dev.loupe.attention.AttentionResult;
import dev.loupe.attention.AttentionSelection.Part;
import dev.loupe.attention.AttentionSink;
import dev.loupe.attention.ValueNorms;
import dev.loupe.generate.Generation.Finish;
import dev.loupe.kernels.GpuException;
import dev.loupe.model.Activations;
import dev.loupe.model.ModelInfo;
import dev.loupe.model.Transformer;
import dev.loupe.ops.AttentionInput;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.AttentionPlan.Kind;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Ops;
import dev.loupe.ops.SessionRoom;
import dev.loupe.ops.SessionSize;
import dev.loupe.ops.StepPlan;
import dev.loupe.ops.Steps;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.sampling.Sampler;
import dev.loupe.text.Count;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.Gpt2Config;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * One request under way: its cache and scratch, its samples, and the loop that reads the prompt in
 * one pass and then writes one token of every sample per pass. All samples that are still being
 * written stand at the same position.
 */
public final class Session implements AutoCloseable {
  /** Rows of logits made at a time where those of the whole prompt are wanted. */
  private static final int LOGIT_ROWS = 32;

  private final Request request;
  private final Transformer model;
  private final Tokenizer tokenizer;
  private final ModelInfo info;
  private final Gpt2Config config;
  private final int[] prompt;
  private final int tokens;
  private final TensorArena arena;
  private final KvCache kv;
  private final Activations activations;
  private final Tensor logits; // [rows, V]
  private final float[] row; // one row of logits
  private final List<Sample> samples = new ArrayList<>();
  private final Optional<AttentionPlan> attention;
  private final @Nullable AttentionRecorder recorder;
  private final @Nullable ValueNorms valueNorms;
  private int dropped; // tokens of the run that have left the context
  private boolean reading;

  /**
   * @param norms gives those of the model's values, if they are wanted
   */
  public Session(
      Transformer model,
      Tokenizer tokenizer,
      ModelInfo info,
      Request request,
      Supplier<ValueNorms> norms) {
    this.model = model;
    this.tokenizer = tokenizer;
    this.info = info;
    this.request = request;
    config = model.config();
    prompt = promptIds(request, tokenizer, config);
    tokens = tokensToWrite(request, prompt.length, config);
    int total = prompt.length + tokens;
    int context = Math.min(total, config.nPositions());
    dropped = Math.max(0, prompt.length - config.nPositions());
    attention = request.attention.map(selection -> selection.of(config));
    if (dropped > 0 && attention.isPresent()) {
      throw new IllegalArgumentException(
          "attention of a prompt longer than the context: %s, the model reads %d"
              .formatted(Count.of(prompt.length, "token"), config.nPositions()));
    }
    boolean weighted = request.attention.map(a -> a.keeps(Part.VALUE_NORMS)).orElse(false);
    valueNorms = weighted ? norms.get() : null;
    SessionRoom room =
        model.session(size(context), size(SessionSize.kept(context, config.nPositions())));
    SessionSize size = room.size();
    arena = room.arena();
    try {
      kv =
          new KvCache(
              arena,
              config.nLayer(),
              config.nHead(),
              config.headDim(),
              request.samples,
              size.positions());
      activations = Activations.allocate(arena, config, size.rows());
      logits = arena.allocate(Math.max(size.logitRows(), request.samples), config.vocabSize());
      row = new float[config.vocabSize()];
      BitSet ends = request.endTokens(config);
      for (int s = 0; s < request.samples; s++) {
        AttentionResult kept =
            request
                .attention
                .map(selection -> AttentionResult.allocate(selection, selection.of(config), total))
                .orElse(AttentionResult.NONE);
        samples.add(new Sample(tokenizer, ends, request, s, prompt, kept));
      }
      recorder = attention.map(plan -> recorder(plan, size, total)).orElse(null);
    } catch (Throwable e) {
      arena.close();
      throw e;
    }
  }

  private SessionSize size(int context) {
    int ahead = model.ops().rebuildsAhead();
    return new SessionSize(
        config,
        context,
        request.samples,
        request.logprobs < 0 ? 1 : Math.min(LOGIT_ROWS, context),
        tokens > 0,
        attention,
        attention.map(plan -> AttentionRecorder.scratchBytes(plan, context, ahead)).orElse(0L));
  }

  /** The prompt is read once, so its rows go to all samples. */
  private AttentionRecorder recorder(AttentionPlan plan, SessionSize size, int total) {
    Map<Kind, AttentionSink> sinks = new EnumMap<>(Kind.class);
    for (Kind kind : plan.kept()) {
      sinks.put(
          kind,
          (s, layer, head, query, row) -> {
            for (Sample sample : readBy(s)) {
              sample.attention.put(kind, layer, head, dropped, query, row);
            }
          });
    }
    return new AttentionRecorder(
        arena,
        plan,
        size.positions(),
        total,
        model.ops().rebuildsAhead(),
        size.attentionScratch(),
        sinks);
  }

  /** The samples that a row of a sequence is of. */
  private List<Sample> readBy(int sequence) {
    return reading ? samples : samples.subList(sequence, sequence + 1);
  }

  /** What a request reads: its ids, or those of its text, or the beginning-of-text token. */
  public static int[] promptIds(Request request, Tokenizer tokenizer, Gpt2Config config) {
    if (!request.stops.isEmpty() && tokenizer.whyNoText().isPresent()) {
      throw new IllegalArgumentException(
          "stop strings end a text, and this model takes token ids alone: "
              + tokenizer.whyNoText().get());
    }
    int[] ids =
        request.text.isPresent()
            ? tokenizer.encodePrompt(request.text.get(), request.special, request.front)
            : request.ids;
    if (ids.length == 0) {
      if (config.bosTokenId() < 0) {
        throw new IllegalArgumentException(
            "the prompt is empty and the model names no beginning-of-text token");
      }
      return new int[] {config.bosTokenId()};
    }
    for (int id : ids) {
      tokenizer.requireToken(id);
    }
    request.stopTokens.forEach(tokenizer::requireToken);
    return ids;
  }

  /**
   * How many tokens fit a context after a prompt.
   *
   * @param prompt tokens, no more than the context holds
   * @param lastHasPosition whether the last of them takes a position: nothing is predicted from it,
   *     so that it needs none unless it is read for something else
   */
  static int roomAfter(int prompt, boolean lastHasPosition, Gpt2Config config) {
    return config.nPositions() - prompt + (lastHasPosition ? 0 : 1);
  }

  /** How many tokens a request writes at most, after so many of its prompt. */
  static int tokensToWrite(Request request, int prompt, Gpt2Config config) {
    if (request.slide) {
      return request.tokens < 0 ? Request.DEFAULT_TOKENS : request.tokens;
    }
    int over = prompt - config.nPositions();
    if (over > 0) {
      throw new IllegalArgumentException(
          "the prompt has %s and the model reads %d: shorten it by %d, or let the context slide (--overflow slide)"
              .formatted(Count.of(prompt, "token"), config.nPositions(), over));
    }
    boolean lastHasPosition = request.lastHasPosition();
    int room = roomAfter(prompt, lastHasPosition, config);
    if (request.tokens > room || (request.tokens < 0 && room == 0)) {
      throw new IllegalArgumentException(
          "%d prompt tokens leave room for %d new ones in a context of %d%s: ask for fewer, or let the context slide (--overflow slide)"
              .formatted(
                  prompt,
                  room,
                  config.nPositions(),
                  lastHasPosition ? ", where the last is read too" : ""));
    }
    return request.tokens < 0 ? Math.min(Request.DEFAULT_TOKENS, room) : request.tokens;
  }

  public List<Generation> run() {
    try {
      List<Generation> results = generate();
      arena.keep();
      return results;
    } catch (CancellationException e) { // between two passes, with nothing amiss
      arena.keep();
      throw e;
    }
  }

  private List<Generation> generate() {
    long start = System.nanoTime();
    readPrompt();
    long read = System.nanoTime();
    int passes = 0;
    RuntimeException failure = null;
    try {
      passes = write();
    } catch (GpuException e) {
      if (samples.getFirst().length() == prompt.length) {
        throw e; // before the first token
      }
      failure = e;
      passes = samples.stream().mapToInt(Sample::length).max().orElseThrow() - prompt.length;
      samples.forEach(sample -> sample.end(Finish.ERROR));
    }
    Generation.Timing timing =
        new Generation.Timing(
            (read - start) / 1e6,
            prompt.length - Math.max(0, prompt.length - config.nPositions()),
            (System.nanoTime() - read) / 1e6,
            passes);
    List<Generation> results = new ArrayList<>();
    for (Sample sample : samples) {
      results.add(sample.result(info, request, dropped, timing));
    }
    if (failure != null) {
      throw new BrokenRunException(results, failure);
    }
    return results;
  }

  private void readPrompt() {
    Batch batch = Batch.sequence(0, 0, samples.getFirst().ids(dropped, prompt.length));
    Activations a = activations.rows(batch.rows());
    reading = true;
    forward(batch, a);
    reading = false;
    if (request.logprobs >= 0) {
      notePrompt(a, batch.rows());
    }
    readLogits(a, batch.rows() - 1, 1);
    model.ops().read(logits, 0, row, row.length);
    Sampler.requireFinite(row);
    for (int s = 1; s < samples.size(); s++) {
      kv.copySequence(model.ops(), 0, s);
    }
  }

  private void observe(Ops ops, AttentionInput in, Tensor lse) {
    if (valueNorms != null && attention.orElseThrow().layers().contains(in.layer())) {
      valueNorms.observe(
          ops,
          in,
          attention.orElseThrow().heads(),
          (s, layer, head, position, norm) -> {
            for (Sample sample : readBy(s)) {
              sample.attention.value(layer, head, dropped + position, norm);
            }
          });
    }
    if (recorder != null) {
      recorder.observe(ops, in, lse);
    }
    if (reading && !request.listener.reading(in.layer() + 1, config.nLayer())) {
      throw new CancellationException("ended while reading the prompt");
    }
  }

  /** Logits of {@code count} rows of the last pass, to the first rows of {@link #logits}. */
  private void readLogits(Activations a, int first, int count) {
    model.logits(a, first, count == logits.rows() ? logits : logits.rows(0, count));
  }

  private void notePrompt(Activations a, int rows) {
    for (int i = 0; i <= dropped; i++) {
      int at = i;
      samples.forEach(sample -> sample.note(prompt[at], null)); // nothing came before it
    }
    for (int first = 0; first < rows - 1; first += logits.rows()) {
      int count = Math.min(logits.rows(), rows - 1 - first);
      readLogits(a, first, count);
      for (int i = 0; i < count; i++) {
        model.ops().read(logits, i, row, row.length);
        Sampler.requireFinite(row);
        for (Sample sample : samples) {
          sample.note(prompt[dropped + first + i + 1], row);
        }
      }
    }
  }

  /**
   * Writes until every sample has ended. Afterwards every token, the last too, has been read where
   * attention is kept, so that its row is there.
   *
   * @return number of passes that wrote a token
   */
  private int write() {
    List<Sample> writing = new ArrayList<>(samples);
    List<Sample> read = List.of();
    int passes = 0;
    if (tokens > 0) {
      try (Decoder decoder = decoder()) {
        while (passes < tokens && !writing.isEmpty()) {
          passes++;
          decoder.next(read, writing);
          if (Thread.interrupted()) {
            writing.forEach(sample -> sample.end(Finish.INTERRUPTED));
          } else if (passes == tokens) {
            writing.forEach(sample -> sample.end(Finish.LENGTH));
          }
          List<Sample> ended = writing.stream().filter(Sample::finished).toList();
          writing.removeAll(ended);
          read = new ArrayList<>(writing);
          if (recorder != null) {
            read.addAll(ended);
          }
        }
        if (recorder != null && !read.isEmpty()) {
          decoder.next(read, List.of());
        }
      }
    }
    samples.forEach(sample -> sample.end(Finish.LENGTH));
    return passes;
  }

  /**
   * Tokens are chosen on the device where that can be, and on the host where it takes what the
   * device does not bring along: how often a token was written, which may not be chosen yet, what
   * heads make of a new one.
   */
  private Decoder decoder() {
    boolean onHost = request.sampling.countsTokens() || valueNorms != null || request.minTokens > 0;
    Optional<Steps> steps = onHost ? Optional.empty() : model.ops().steps(this::plan);
    if (steps.isPresent()) {
      return new DeviceDecoder(
          this, steps.get(), recorder, samples, request.logprobs >= 0 ? row : null);
    }
    return new HostDecoder(
        this,
        model,
        activations,
        logits,
        new Sampler(request.sampling, tokenizer.ids()),
        samples.size());
  }

  private StepPlan plan() {
    Activations a = Activations.forSteps(arena, config, samples.size());
    Tensor rows = logits.rows(0, samples.size());
    return new StepPlan(
        (batch, tap) -> {
          model.forward(batch, kv, a, Mask.CAUSAL, tap);
          model.logits(a, 0, rows);
        },
        kv,
        rows,
        request.sampling,
        tokenizer.ids(),
        samples.getFirst().seen,
        request.firstSample,
        prompt.length,
        config.nPositions(),
        tokens + (recorder == null ? 0 : 1),
        request.logprobs >= 0,
        attention);
  }

  int dropped() {
    return dropped;
  }

  void forward(Batch batch, Activations a) {
    model.forward(batch, kv, a, Mask.CAUSAL, this::observe);
    if (recorder != null) {
      recorder.finish();
    }
  }

  /** Appends a chosen token; {@code logits} are those it was chosen from, if they are at hand. */
  void accept(Sample sample, int id, float @Nullable [] logits) {
    sample.note(id, logits);
    sample.accept(id);
  }

  /**
   * Position of the newest token of samples that stand together; makes room where the context is
   * full.
   */
  int positionOf(List<Sample> read) {
    if (read.getFirst().length() - 1 - dropped == config.nPositions()) {
      slide(read);
    }
    return read.getFirst().length() - 1 - dropped;
  }

  /** Makes room in a full context: its older half is dropped and the rest read anew. */
  private void slide(List<Sample> fed) {
    int read = fed.getFirst().length() - 1; // all tokens but the newest
    int keep = Math.max(1, config.nPositions() / 2);
    dropped = read - keep;
    if (recorder != null) {
      recorder.slide(dropped, read);
    }
    Activations a = activations.rows(keep);
    for (Sample sample : fed) {
      kv.truncate(sample.number, 0);
      Batch batch = Batch.sequence(sample.number, 0, sample.ids(dropped, read));
      forward(batch, a);
    }
  }

  @Override
  public void close() {
    arena.close();
  }
}
