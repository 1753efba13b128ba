package dev.loupe.generate;

import dev.loupe.attention.AttentionRecorder;
import dev.loupe.attention.AttentionResult;
import dev.loupe.attention.ValueNorms;
import dev.loupe.generate.Generation.Finish;
import dev.loupe.model.ModelInfo;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.Ops;
import dev.loupe.ops.TensorArena;
import dev.loupe.sampling.NotFiniteException;
import dev.loupe.sampling.Sampler;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.config.Gpt2Config;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.locks.Condition;
import org.jspecify.annotations.Nullable;

/**
 * A request under way in a {@link Scheduler}: its sequences, and what becomes of the logits that
 * passes bring. Its own thread works on it between passes, and the leader of a pass during one.
 *
 * <p>The first sequence reads the prompt for all of them; the others start from a copy of its
 * cache.
 */
final class Run implements AttentionRecorder.Sequences {
  final GenerateRequest request;
  final int[] prompt;
  final int tokens; // to write at most
  private final Sampler sampler;
  final List<Sequence> sequences = new ArrayList<>();
  private final List<AttentionResult> results = new ArrayList<>(); // what each keeps

  // under the lock of the turns
  @Nullable Condition turn; // once it has entered
  boolean ready; // waits for a pass
  boolean busy; // was in the last pass, and will be back
  boolean inPass;
  boolean passed;
  @Nullable Throwable failure;

  private final Gpt2Config config;
  private final Optional<AttentionPlan> plan;
  private final @Nullable ValueNorms valueNorms;
  private @Nullable AttentionRecorder recorder;
  private final int firstDropped;
  private boolean promptRead;
  private float @Nullable [] afterPrompt; // logits, where samples may start later
  private int reached; // tokens of the prompt that have been read
  private int told; // layers of the prompt of which the listener has heard
  private int noted; // tokens of the prompt whose scores are known
  private final long start = System.nanoTime();
  private long prefilled; // when the prompt had been read
  private boolean ended;

  /**
   * @param config of the model, maybe with other heads
   * @throws IllegalArgumentException if the request does not fit the model
   */
  Run(OpenModel open, Gpt2Config config, GenerateRequest request) {
    Tokenizer tokenizer = open.tokenizer();
    this.request = request;
    this.config = config;
    prompt = ContextRoom.ids(request, tokenizer, config);
    tokens = ContextRoom.tokensToWrite(request, prompt.length, config);
    plan = request.attention.map(selection -> selection.of(config));
    sampler = new Sampler(request.sampling, tokenizer.ids());
    firstDropped = Math.max(0, prompt.length - config.nPositions());
    ContextRoom.requireWhole(request, prompt.length, config);
    valueNorms = open.valueNorms(request.attention);
    BitSet ends = request.endTokens(config);
    for (int s = 0; s < request.samples; s++) {
      AttentionResult kept =
          plan.map(p -> AttentionResult.allocate(request.attention.orElseThrow(), p, longest()))
              .orElse(AttentionResult.NONE);
      results.add(kept);
      Sample sample = new Sample(tokenizer, ends, request, s, prompt, kept);
      sequences.add(new Sequence(this, sample, firstDropped));
    }
    reached = firstDropped;
    for (; request.logprobs >= 0 && noted <= firstDropped; noted++) { // nothing came before them
      for (Sequence sequence : sequences) {
        sequence.sample.note(prompt[noted], null);
      }
    }
  }

  /** Tokens of the longest text that this can become. */
  int longest() {
    return prompt.length + tokens;
  }

  Optional<AttentionPlan> plan() {
    return plan;
  }

  @Nullable ValueNorms valueNorms() {
    return valueNorms;
  }

  /** What takes its attention out of passes; null where it keeps none. */
  @Nullable AttentionRecorder recorder() {
    return recorder;
  }

  /** Bytes that its attention is rebuilt in, for rows of at most {@code keys} keys. */
  long attentionScratch(int keys, Ops ops) {
    return plan.map(p -> AttentionRecorder.scratchBytes(ops, p, keys)).orElse(0L);
  }

  /**
   * Has its attention taken out of passes, if it keeps any.
   *
   * @param arena for what rows are rebuilt in
   * @param keys most keys that a row reads
   * @param scratch bytes for that
   */
  void record(Ops ops, TensorArena arena, int keys, long scratch) {
    plan.ifPresent(
        p ->
            recorder =
                new AttentionRecorder(ops, arena, p, keys, longest(), scratch, valueNorms, this));
  }

  /** Slots that it has. */
  int slots() {
    int slots = 0;
    for (Sequence sequence : sequences) {
      slots += sequence.slot < 0 ? 0 : 1;
    }
    return slots;
  }

  boolean hasSlot() {
    return slots() > 0;
  }

  /** The sequence in a slot, which is one of its own. */
  private Sequence inSlot(int slot) {
    if (slot < sequences.size()
        && sequences.get(slot).slot == slot) { // so it is where a run is alone
      return sequences.get(slot);
    }
    for (Sequence sequence : sequences) {
      if (sequence.slot == slot) {
        return sequence;
      }
    }
    throw new IllegalStateException("no sequence of the run is in slot " + slot);
  }

  /** The first sequence that waits for a slot, or null. Where nothing is written, one is enough. */
  @Nullable Sequence waiting() {
    for (Sequence sequence : tokens == 0 ? sequences.subList(0, 1) : sequences) {
      if (sequence.slot < 0 && !sequence.over) {
        return sequence;
      }
    }
    return null;
  }

  /** Tokens of the prompt that are read. */
  int promptRows() {
    return prompt.length - firstDropped;
  }

  boolean promptRead() {
    return promptRead;
  }

  /** While the prompt is read, its rows are those of all sequences. */
  @Override
  public List<AttentionResult> results(int slot) {
    return promptRead ? inSlot(slot).results : results;
  }

  @Override
  public int dropped(int slot) {
    return inSlot(slot).dropped;
  }

  @Override
  public int recorded(int slot) {
    return inSlot(slot).recorded;
  }

  /** How many rows of a piece give scores of the prompt's tokens; its first row is at place. */
  int rowsToScore(Sequence sequence, int place, int rows) {
    boolean next = request.logprobs >= 0 && !promptRead && place + 1 == noted;
    return next && sequence == sequences.getFirst() ? Math.min(rows, prompt.length - noted) : 0;
  }

  /** Notes the score of the next token of the prompt, from the logits before it. */
  void notePrompt(float[] logits) {
    if (failure != null) {
      return;
    }
    try {
      Sampler.requireFinite(logits);
    } catch (NotFiniteException e) { // the other runs of the pass go on
      failure = e;
      return;
    }
    for (Sequence sequence : sequences) {
      sequence.sample.note(prompt[noted], logits);
    }
    noted++;
  }

  /** Whether the logits of its newest token are wanted. */
  boolean wantsLogits(Sequence sequence) {
    return !sequence.sample.finished();
  }

  /**
   * While a layer is computed that only this run takes part in; on the run's own thread.
   *
   * @param rows of the prompt that the pass reads
   * @throws CancellationException if the listener ends the run
   */
  void reading(int rows, int layersDone) {
    if (!promptRead) {
      long layers = config.nLayer();
      tell(reached * layers + (long) rows * layersDone);
    }
  }

  /** After a pass: how much the cache holds of a sequence. */
  void reached(Sequence sequence, int cached) {
    int known = sequence.dropped + cached;
    sequence.recorded = Math.max(sequence.recorded, known);
    if (!promptRead) {
      reached = known;
      if (known >= prompt.length) {
        promptRead = true;
        prefilled = System.nanoTime();
        sequences.forEach(each -> each.recorded = Math.max(each.recorded, known));
      }
    }
  }

  /** Keeps the logits after the prompt, where other samples may start from them. */
  void keepAfterPrompt(float[] logits) {
    if (sequences.size() > 1 && afterPrompt == null) {
      afterPrompt = logits.clone();
    }
  }

  /** A copy of the logits after the prompt, which were kept. */
  float[] afterPrompt() {
    return Objects.requireNonNull(afterPrompt).clone();
  }

  /** Tells the listener how far the prompt was read, in rows times layers. */
  private void tell(long done) {
    int layers = config.nLayer();
    if (told == layers) {
      return;
    }
    told = (int) ((done - (long) firstDropped * layers) / promptRows());
    if (!request.listener.reading(told, layers)) {
      throw new CancellationException("ended while reading the prompt");
    }
  }

  /** What its thread waits with. */
  Condition turn() {
    return Objects.requireNonNull(turn, "the run has not entered");
  }

  /** Throws what the last pass failed with, if it did. */
  void rethrow() {
    switch (failure) {
      case null -> {}
      case RuntimeException e -> throw e;
      case Error e -> throw e;
      default -> throw new IllegalStateException(failure);
    }
  }

  boolean ended() {
    return ended;
  }

  /**
   * Makes tokens of what the last pass brought.
   *
   * @throws CancellationException if the listener or an interrupt ended it before the prompt was
   *     read
   */
  void take() {
    boolean interrupted = Thread.interrupted();
    if (!promptRead) {
      if (interrupted) {
        throw new CancellationException("ended while reading the prompt");
      }
      tell((long) reached * config.nLayer());
      return;
    }
    tell((long) prompt.length * config.nLayer());
    for (Sequence sequence : sequences) {
      if (sequence.due) {
        sequence.due = false;
        if (!sequence.sample.finished()) { // else its last row of attention was wanted
          choose(sequence);
        }
      }
    }
    interrupted |= Thread.interrupted(); // while it chose, or its listener heard
    endAfterStep(interrupted);
  }

  private void choose(Sequence sequence) {
    DeviceDecoder.Chosen chosen = sequence.chosen;
    if (chosen != null) {
      sequence.chosen = null;
      if (!chosen.isFinite()) {
        throw new NotFiniteException("a logit is NaN or infinite");
      }
      accept(sequence, chosen.id(), chosen.logits());
      return;
    }
    float[] logits = Objects.requireNonNull(sequence.logits);
    if (tokens == 0) {
      Sampler.requireFinite(logits);
      sequences.forEach(each -> each.sample.end(Finish.LENGTH));
      return;
    }
    accept(sequence, sequence.sample.choose(sampler, logits), logits);
    if (sequence.sample.finished()) {
      sequence.logits = null;
    }
  }

  /** Appends a chosen token; {@code logits} are those it was chosen from, if they are at hand. */
  void accept(Sequence sequence, int id, float @Nullable [] logits) {
    Sample sample = sequence.sample;
    sample.note(id, logits);
    sample.accept(id);
    if (sample.length() == longest()) {
      sample.end(Finish.LENGTH);
    }
  }

  /** After each step: what the listener, an interrupt or the last token ends. */
  void endAfterStep(boolean interrupted) {
    boolean end = interrupted;
    for (Sequence sequence : sequences) {
      end |= sequence.sample.interrupted();
    }
    if (end) {
      sequences.forEach(each -> each.sample.end(Finish.INTERRUPTED));
    }
    ended = sequences.stream().allMatch(this::isOver);
  }

  /** Tells those who give slots away which sequences need none any more; under the lock. */
  void noteOver() {
    sequences.forEach(sequence -> sequence.over = isOver(sequence));
  }

  /** A finished text is read to its end where attention is kept, so that each token has its row. */
  private boolean isOver(Sequence sequence) {
    Sample sample = sequence.sample;
    return sample.finished() && (recorder == null || sequence.recorded == sample.length());
  }

  /** Ends the texts that are still being written, because the GPU failed. */
  boolean breakOff() {
    boolean written = false;
    for (Sequence sequence : sequences) {
      written |= sequence.sample.length() > prompt.length;
    }
    if (written) {
      sequences.forEach(each -> each.sample.end(Finish.ERROR));
    }
    return written;
  }

  List<Generation> results(ModelInfo info) {
    int longest = sequences.stream().mapToInt(each -> each.sample.length()).max().orElseThrow();
    Generation.Timing timing =
        new Generation.Timing(
            (prefilled - start) / 1e6,
            Math.min(prompt.length, config.nPositions()),
            (System.nanoTime() - prefilled) / 1e6,
            longest - prompt.length);
    return sequences.stream()
        .map(each -> each.sample.result(info, request, each.dropped, timing))
        .toList();
  }
}
