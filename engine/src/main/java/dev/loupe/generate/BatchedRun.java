package dev.loupe.generate;

import dev.loupe.attention.AttentionResult;
import dev.loupe.generate.Generation.Finish;
import dev.loupe.model.ModelInfo;
import dev.loupe.sampling.Sampler;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.Gpt2Config;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CancellationException;
import java.util.concurrent.locks.Condition;
import org.jspecify.annotations.Nullable;

/**
 * A request under way in a {@link Batcher}: its texts, and what becomes of the logits that passes
 * bring. Its thread works on it between passes, the leader of a pass during one.
 */
final class BatchedRun {
  /** One sample. */
  static final class Text {
    final BatchedRun run;
    final Sample sample;
    private float @Nullable [] logits; // of its newest token
    private boolean due; // they are there, and the next token is to be chosen
    int slot = -1; // this and what follows is under the batcher's lock
    private boolean over;

    private Text(BatchedRun run, Sample sample) {
      this.run = run;
      this.sample = sample;
    }

    /** Tells those who give slots away whether it has ended, and returns that. */
    boolean noteWhetherOver() {
      over = sample.finished();
      return over;
    }
  }

  final int[] prompt;
  final List<Text> texts = new ArrayList<>();

  // under the batcher's lock
  final Condition turn;
  boolean inPass;
  boolean passed;
  @Nullable Throwable failure;

  private final Request request;
  private final Gpt2Config config;
  private final int tokens;
  private final Sampler sampler;
  private final float[][] promptLogits; // of tokens that the last pass read, where odds are wanted
  private int promptRows;
  private int reached; // tokens of the prompt that have been read
  private int noted; // tokens of the prompt whose odds are known
  private final long start = System.nanoTime();
  private long read; // when the prompt had been
  private boolean ended;

  /**
   * @param turn of the batcher's lock
   * @throws IllegalArgumentException if the request does not fit the model
   */
  BatchedRun(Request request, Gpt2Config config, Tokenizer tokenizer, Condition turn) {
    this.request = request;
    this.config = config;
    this.turn = turn;
    prompt = Session.promptIds(request, tokenizer, config);
    tokens = Session.tokensToWrite(request, prompt.length, config);
    sampler = new Sampler(request.sampling, tokenizer.ids());
    int rows = request.logprobs < 0 ? 0 : Math.min(Batcher.PROMPT_ROWS, prompt.length - 1);
    promptLogits = new float[rows][config.vocabSize()];
    BitSet ends = request.endTokens(config);
    for (int s = 0; s < request.samples; s++) {
      Sample sample = new Sample(tokenizer, ends, request, s, prompt, AttentionResult.NONE);
      if (request.logprobs >= 0) {
        sample.note(prompt[0], null); // nothing came before it
      }
      texts.add(new Text(this, sample));
    }
    noted = 1;
  }

  /** Slots that it has. */
  int slots() {
    int slots = 0;
    for (Text text : texts) {
      slots += text.slot < 0 ? 0 : 1;
    }
    return slots;
  }

  boolean hasSlot() {
    return slots() > 0;
  }

  /** The first text that waits for a slot, or null. Where nothing is written, one is enough. */
  @Nullable Text waiting() {
    for (Text text : tokens == 0 ? texts.subList(0, 1) : texts) {
      if (text.slot < 0 && !text.over) {
        return text;
      }
    }
    return null;
  }

  /** Where the logits of the token at {@code position} go, if they are wanted; in a pass. */
  float @Nullable [] logitsAfter(Text text, int position) {
    if (text.sample.number == 0) {
      reached = Math.min(position + 1, prompt.length);
    }
    if (position == text.sample.length() - 1) {
      text.due = true;
      if (text.logits == null) {
        text.logits = new float[config.vocabSize()];
      }
      return text.logits;
    }
    boolean wanted = request.logprobs >= 0 && text.sample.number == 0;
    return wanted && position + 1 == noted + promptRows && position + 1 < prompt.length
        ? promptLogits[promptRows++]
        : null;
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

  /** Makes tokens of what the last pass brought. */
  void take() {
    notePrompt();
    for (Text text : texts) {
      if (text.due) {
        text.due = false;
        take(text);
      }
    }
    boolean interrupted = Thread.interrupted();
    if (read == 0) {
      int layers = config.nLayer();
      int done = (int) ((long) layers * reached / prompt.length);
      if (interrupted || !request.listener.reading(done, layers)) {
        throw new CancellationException("ended while reading the prompt");
      }
      return;
    }
    boolean all = true;
    for (Text text : texts) {
      interrupted |= text.sample.interrupted();
      all &= text.sample.finished();
    }
    if (interrupted) {
      texts.forEach(text -> text.sample.end(Finish.INTERRUPTED));
    }
    ended = all || interrupted;
  }

  private void notePrompt() {
    for (int i = 0; i < promptRows; i++) {
      Sampler.requireFinite(promptLogits[i]);
      for (Text text : texts) {
        text.sample.note(prompt[noted], promptLogits[i]);
      }
      noted++;
    }
    promptRows = 0;
  }

  private void take(Text text) {
    float[] logits = Objects.requireNonNull(text.logits);
    if (read == 0) {
      read = System.nanoTime();
    }
    if (tokens == 0) {
      Sampler.requireFinite(logits);
      texts.forEach(each -> each.sample.end(Finish.LENGTH));
      return;
    }
    Sample sample = text.sample;
    int id = sample.choose(sampler, logits);
    sample.note(id, logits);
    sample.accept(id);
    if (sample.length() == prompt.length + tokens) {
      sample.end(Finish.LENGTH);
    }
    if (sample.finished()) {
      text.logits = null;
    }
  }

  List<Generation> results(ModelInfo info) {
    Generation.Timing timing =
        new Generation.Timing(
            (read - start) / 1e6,
            prompt.length,
            (System.nanoTime() - read) / 1e6,
            texts.stream().mapToInt(text -> text.sample.length()).max().orElseThrow()
                - prompt.length);
    return texts.stream().map(text -> text.sample.result(info, request, 0, timing)).toList();
  }
}
