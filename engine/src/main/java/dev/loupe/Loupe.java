package dev.loupe;

import dev.loupe.attention.AttentionSelection;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.selftest.VerdictChoice;
import dev.loupe.generate.BatchReader;
import dev.loupe.generate.BrokenRunException;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.OpenModel;
import dev.loupe.generate.Prompt;
import dev.loupe.generate.ReadListener;
import dev.loupe.generate.ReadRequest;
import dev.loupe.generate.Scheduler;
import dev.loupe.interpret.ActivationCache;
import dev.loupe.interpret.Comparison;
import dev.loupe.interpret.HeadSurvey;
import dev.loupe.interpret.Lens;
import dev.loupe.interpret.Readout;
import dev.loupe.interpret.RowNumbers;
import dev.loupe.interpret.trace.Circuit;
import dev.loupe.interpret.trace.Part;
import dev.loupe.interpret.trace.PatchGrid;
import dev.loupe.interpret.trace.Trace;
import dev.loupe.interpret.trace.TraceEffort;
import dev.loupe.interpret.trace.TraceRequest;
import dev.loupe.model.ModelInfo;
import dev.loupe.model.Transformer;
import dev.loupe.ops.BackendException;
import dev.loupe.ops.Ops;
import dev.loupe.sampling.NotFiniteException;
import dev.loupe.sampling.Sampling;
import dev.loupe.text.Count;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.Progress;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalLong;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.stream.Stream;

/**
 * An open GPT-2 model: generates text and shows what it attended to.
 *
 * <p>Safe for use by several threads: each call has a session of its own (cache and scratch), and
 * they share the weights. Calls block; {@link GenerateRequest#listener} hears from them meanwhile,
 * and an interrupt ends them early with what they have.
 */
public final class Loupe implements AutoCloseable {
  private final OpenModel model;
  private final DeviceModel device;
  private final List<String> notes;

  private Loupe(Checkpoint checkpoint, Words words, DeviceModel device, ModelInfo info) {
    this.device = device;
    model = new OpenModel(device.model(), checkpoint, words.tokenizer(), info, device::distrust);
    notes =
        Stream.of(checkpoint.notes(), words.notes(), device.notes()).flatMap(List::stream).toList();
  }

  /** Opens a model with {@link Options#defaults}. */
  public static Loupe open(Path source) throws CheckpointException {
    return open(source, Options.defaults());
  }

  /**
   * Opens a model: a folder with config.json, weights and tokenizer, or a weights file. Where the
   * tokenizer is missing or can't be used, the model takes token ids alone, unless the options
   * {@linkplain Options#textRequired refuse that}; {@link #notes} says why.
   *
   * @throws CheckpointException if a file is missing or malformed; the message says which and how
   * @throws BackendException if the backend asked for can't run here
   * @throws GpuException if the GPU fails; a {@link dev.loupe.cuda.driver.GpuMemoryException} if it
   *     has no room for the model
   */
  public static Loupe open(Path source, Options options) throws CheckpointException {
    return open(source, options, Progress.NONE);
  }

  /**
   * Likewise.
   *
   * @param progress hears how many layers have been loaded
   */
  public static Loupe open(Path source, Options options, Progress progress)
      throws CheckpointException {
    long start = System.nanoTime();
    Checkpoint checkpoint =
        Checkpoint.open(source, options.activation().orElse(null), options.adapter().orElse(null));
    DeviceModel device = null;
    Reading reading = new Reading(checkpoint, options);
    try {
      // first, since loading then gives back the pages that this reads
      Optional<String> hash = options.hash() ? Optional.of(checkpoint.sha256()) : Optional.empty();
      device = DeviceModel.open(options, checkpoint, () -> reading.words().tokenizer(), progress);
      Words words = reading.words();
      ModelInfo info =
          new ModelInfo(
              source.toString(),
              hash,
              checkpoint.config(),
              checkpoint.tensor("wte.weight").dtype().name().toLowerCase(Locale.ROOT),
              device.isGpu() ? "cuda" : "cpu",
              device.name(),
              (System.nanoTime() - start) / 1e6);
      checkpoint.checkUnchanged();
      return new Loupe(checkpoint, words, device, info);
    } catch (Throwable e) {
      if (device != null) {
        device.ops().close();
      }
      try {
        reading.words().tokenizer().close(); // what is wrong with it is said first
      } finally {
        checkpoint.close();
      }
      if (e instanceof InternalError error && Checkpoint.isUnreadablePage(error)) {
        throw checkpoint.unreadable(error);
      }
      throw e;
    }
  }

  /**
   * Checks that no other program has written to the model's files since they were opened. Runs do
   * it themselves; this is for readers of a {@link Readout}.
   *
   * @throws java.io.UncheckedIOException of a {@link CheckpointException}, if one has; the message
   *     names the file
   */
  public void requireUnchanged() {
    model.requireUnchanged();
  }

  /**
   * @param notes what the user should know of the tokenizer
   */
  private record Words(Tokenizer tokenizer, List<String> notes) {}

  /** Reads the tokenizer's files beside the weights: each takes as long as the other. */
  private static final class Reading {
    private final FutureTask<Words> words;

    Reading(Checkpoint checkpoint, Options options) {
      words = new FutureTask<>(() -> Loupe.words(checkpoint, options));
      Thread.ofPlatform().daemon().name("loupe-tokenizer").start(words);
    }

    /** Waits for it. */
    Words words() throws CheckpointException {
      boolean interrupted = false;
      try {
        while (true) {
          try {
            return words.get();
          } catch (InterruptedException e) {
            interrupted = true; // files are read to their end
          } catch (ExecutionException e) {
            switch (e.getCause()) {
              case CheckpointException wrong -> throw wrong;
              case RuntimeException wrong -> throw wrong;
              case Error wrong -> throw wrong;
              case null, default -> throw new IllegalStateException(e);
            }
          }
        }
      } finally {
        if (interrupted) {
          Thread.currentThread().interrupt();
        }
      }
    }
  }

  private static Words words(Checkpoint checkpoint, Options options) throws CheckpointException {
    int rows = checkpoint.config().vocabSize();
    try {
      Tokenizer tokenizer = Tokenizer.open(checkpoint, options.gpt2Tokenizer());
      List<String> notes = new ArrayList<>(tokenizer.notes());
      if (tokenizer.size() < rows) {
        notes.add(
            "the model has %s and the tokenizer %s: the other rows stand for nothing"
                .formatted(Count.of(rows, "row"), Count.of(tokenizer.size(), "token")));
      }
      if (tokenizer.size() <= rows) {
        return new Words(tokenizer, notes);
      }
      tokenizer.close();
      throw new CheckpointException(
          "%s: the model has a vocabulary of %d and the tokenizer one of %d: they do not belong together"
              .formatted(checkpoint.source(), rows, tokenizer.size()));
    } catch (CheckpointException e) {
      if (options.textRequired()) {
        throw e;
      }
      String why = String.valueOf(e.getMessage());
      return new Words(
          Tokenizer.ofIds(rows, why), List.of("this model takes token ids alone: " + why));
    }
  }

  /**
   * Continues {@code prompt} by {@code tokens} tokens and keeps the chosen attention.
   *
   * @throws IllegalArgumentException if it does not fit the context, or the selection the model
   */
  public Generation generate(
      String prompt, Sampling sampling, int tokens, AttentionSelection selection) {
    return run(GenerateRequest.text(prompt).sampling(sampling).tokens(tokens).attention(selection))
        .getFirst();
  }

  /** Reads {@code text} and keeps the chosen attention; writes nothing. */
  public Generation read(String text, AttentionSelection selection) {
    return run(GenerateRequest.text(text).tokens(0).attention(selection)).getFirst();
  }

  /**
   * Does what {@code request} says.
   *
   * @return one run for each sample
   * @throws IllegalArgumentException if the request does not fit the model: an id outside the
   *     vocabulary, more tokens than the context holds, a layer or head that does not exist
   * @throws java.util.concurrent.CancellationException if it was ended before the prompt was read
   * @throws GpuException if the GPU fails before a token is written; a {@link
   *     dev.loupe.cuda.driver.GpuMemoryException} if it has no room for the run
   * @throws BrokenRunException if it fails later; has what was made so far
   * @throws NotFiniteException if the model computes NaN or infinity; the message names a weight
   *     that holds one
   */
  public List<Generation> run(GenerateRequest request) {
    return Scheduler.alone(model, request);
  }

  /**
   * For runs of several callers that share forward passes.
   *
   * @param slots texts to write at once, 1 to 1024; where the caches of so many would take more
   *     than a quarter of the machine's memory, or more than a GPU has, there are fewer, and at
   *     most the {@link Options#slots} that were planned for
   * @throws dev.loupe.cuda.driver.GpuMemoryException if the GPU has no room for one
   */
  public Scheduler scheduler(int slots) {
    int planned = device.slots();
    return Scheduler.shared(model, planned == 0 ? slots : Math.min(slots, planned));
  }

  /**
   * For reading many texts in few passes.
   *
   * @param attention of which layers and heads statistics are wanted, and whether those by norm;
   *     empty if none
   * @param logprobs whether the log-probability of each text is wanted, which takes the logits of
   *     all its tokens
   * @param tokens most of a pass; at least those of the model's context are always read at once
   * @throws IllegalArgumentException if the selection does not fit the model
   * @throws GpuException if the GPU fails; a {@link dev.loupe.cuda.driver.GpuMemoryException} if it
   *     has no room for such passes
   */
  public BatchReader batchReader(
      Optional<AttentionSelection> attention, boolean logprobs, int tokens) {
    return new BatchReader(model, attention, logprobs, tokens);
  }

  /**
   * Reads a text and keeps what its attention worked on. The caller closes the result, before this
   * model. See {@link ActivationCache#of}.
   */
  public ActivationCache cache(ReadRequest request) {
    return ActivationCache.of(model, request, -1);
  }

  /** Likewise, with every token's logprob, and {@code top} likely tokens at each place. */
  public ActivationCache cache(ReadRequest request, int top) {
    return ActivationCache.of(model, request, top);
  }

  /**
   * For the residual stream and the logits of a text. The caller closes the result, before this
   * model. See {@link Readout#of}.
   */
  public Readout readout(ReadRequest request) {
    return Readout.of(model, request);
  }

  /** Reads a text with and without interventions; see {@link Comparison#of}. */
  public Comparison compare(ReadRequest request) {
    return Comparison.of(model, request);
  }

  /** Why the model says what it says after one token; see {@link Lens#of}. */
  public Lens lens(Prompt prompt, int position, int target, int top) {
    return lens(prompt, position, target, top, ReadListener.NONE);
  }

  /** Likewise, with a listener. */
  public Lens lens(Prompt prompt, int position, int target, int top, ReadListener listener) {
    return Lens.of(model, prompt, position, target, top, listener);
  }

  /** From a token to the parts that wrote it; see {@link Trace#of}. */
  public Trace trace(TraceRequest request) {
    return Trace.of(model, request);
  }

  /** What a trace takes at most; see {@link Trace#effort}. */
  public TraceEffort traceEffort(TraceRequest request) {
    return Trace.effort(model, request);
  }

  /** How faithful a given circuit is; see {@link Trace#kept}. */
  public double kept(TraceRequest request, List<Circuit.Link> links) {
    return Trace.kept(model, request, links);
  }

  /** Activation patching of layers or heads by positions; see {@link PatchGrid#of}. */
  public PatchGrid patch(TraceRequest request, PatchGrid.Kind kind) {
    return PatchGrid.of(model, request, kind);
  }

  /** Likewise of one head's output, queries, keys and values. */
  public PatchGrid patch(TraceRequest request, Part head) {
    return PatchGrid.of(model, request, head);
  }

  /** All numbers behind one row of attention; see {@link RowNumbers#of}. */
  public RowNumbers row(Prompt prompt, int layer, int head, int query, int target) {
    return RowNumbers.of(model, prompt, layer, head, query, target);
  }

  /** What each head does; see {@link HeadSurvey#of}. */
  public HeadSurvey heads(Prompt prompt) {
    return heads(prompt, ReadListener.NONE);
  }

  /** Likewise, with a listener. */
  public HeadSurvey heads(Prompt prompt, ReadListener listener) {
    return HeadSurvey.of(model, prompt, listener);
  }

  /** What was opened and what it runs on. */
  public ModelInfo info() {
    return model.info();
  }

  /** What the checkpoint leaves open and was assumed, and what is unusual about the GPU. */
  public List<String> notes() {
    return notes;
  }

  /**
   * Which kernels were measured to be the fastest on the shapes of this model, a line a family;
   * empty on the CPU, and where nothing was measured.
   */
  public List<String> fastestKernels() {
    return device.choice().map(VerdictChoice::fastest).orElse(List.of());
  }

  /** Bytes of the GPU's memory that are in use, by whomever; empty on the CPU. */
  public OptionalLong deviceBytesInUse() {
    return device.ops().deviceBytesInUse();
  }

  /** Kernels that a decoding step launches on a GPU, as the last one that was new. */
  public OptionalLong launchesOfStep() {
    return device.ops().launchesOfStep();
  }

  /**
   * Bytes a second that a GPU reads and writes at best while it copies its own memory, measured
   * now; empty on the CPU.
   *
   * @throws dev.loupe.cuda.driver.GpuMemoryException if there is no room for what is copied
   */
  public OptionalDouble copyBytesPerSecond() {
    return device.ops().copyBytesPerSecond();
  }

  /** What makes ids of texts; ends with this model. */
  public Tokenizer tokenizer() {
    return model.tokenizer();
  }

  @Override
  public void close() {
    try (Checkpoint _ = model.checkpoint();
        Tokenizer _ = model.tokenizer();
        Ops _ = device.ops();
        Transformer _ = model.transformer()) {
      // in reverse, and all of them even if the GPU is lost
    }
  }
}
