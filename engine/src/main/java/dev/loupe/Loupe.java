package dev.loupe;

import dev.loupe.attention.AttentionSelection;
import dev.loupe.attention.ValueNorms;
import dev.loupe.generate.BatchReader;
import dev.loupe.generate.Batcher;
import dev.loupe.generate.BrokenRunException;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Request;
import dev.loupe.generate.Sample;
import dev.loupe.generate.Session;
import dev.loupe.generate.Token;
import dev.loupe.interpret.ActivationCache;
import dev.loupe.interpret.Comparison;
import dev.loupe.interpret.HeadSurvey;
import dev.loupe.interpret.Lens;
import dev.loupe.interpret.LensSession;
import dev.loupe.interpret.Readout;
import dev.loupe.kernels.CudaDriver;
import dev.loupe.kernels.FirstContact;
import dev.loupe.kernels.GpuException;
import dev.loupe.kernels.GpuMemoryException;
import dev.loupe.kernels.KernelVerdicts;
import dev.loupe.kernels.VerdictChoice;
import dev.loupe.model.AblatedModel;
import dev.loupe.model.ModelInfo;
import dev.loupe.model.Transformer;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Ops;
import dev.loupe.ops.cpu.CpuOps;
import dev.loupe.ops.cuda.CudaOps;
import dev.loupe.sampling.NotFiniteException;
import dev.loupe.sampling.Sampling;
import dev.loupe.text.Count;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.CheckpointException;
import dev.loupe.weights.Gpt2Config;
import dev.loupe.weights.Progress;
import dev.loupe.weights.StoredTensor;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * An open GPT-2 model: generates text and shows what it attended to.
 *
 * <p>Safe for use by several threads: each call has a session of its own (cache and scratch), and
 * they share the weights. Calls block; {@link Request#listener} hears from them meanwhile, and an
 * interrupt ends them early with what they have.
 */
public final class Loupe implements AutoCloseable {
  private final Checkpoint checkpoint;
  private final Tokenizer tokenizer;
  private final Ops ops;
  private final Transformer model;
  private final ModelInfo info;
  private final List<String> notes;
  private @Nullable ValueNorms valueNorms; // once somebody wants them

  private Loupe(Checkpoint checkpoint, Words words, Opened opened, ModelInfo info) {
    this.checkpoint = checkpoint;
    this.tokenizer = words.tokenizer();
    this.ops = opened.ops();
    this.model = opened.model();
    this.info = info;
    this.notes =
        Stream.of(checkpoint.notes(), words.notes(), opened.notes()).flatMap(List::stream).toList();
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
   * @throws GpuException if the GPU fails; a {@link dev.loupe.kernels.GpuMemoryException} if it has
   *     no room for the model
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
    Words words = null;
    Opened opened = null;
    try {
      words = words(checkpoint, options);
      // first, since loading then gives back the pages that this reads
      Optional<String> hash = options.hash() ? Optional.of(checkpoint.sha256()) : Optional.empty();
      opened = open(options, checkpoint, words.tokenizer(), progress);
      ModelInfo info =
          new ModelInfo(
              source.toString(),
              hash,
              checkpoint.config(),
              checkpoint.tensor("wte.weight").dtype().name().toLowerCase(Locale.ROOT),
              opened.ops() instanceof CudaOps ? "cuda" : "cpu",
              opened.device(),
              (System.nanoTime() - start) / 1e6);
      checkpoint.checkUnchanged();
      return new Loupe(checkpoint, words, opened, info);
    } catch (Throwable e) {
      if (opened != null) {
        opened.ops().close();
      }
      if (words != null) {
        words.tokenizer().close();
      }
      checkpoint.close();
      if (e instanceof InternalError error && Checkpoint.isUnreadablePage(error)) {
        throw checkpoint.unreadable(error);
      }
      throw e;
    }
  }

  /** Work on the model that may read weights from their files. */
  private interface Work<T> {
    T run();
  }

  /**
   * Does what reads weights while it runs.
   *
   * @throws UncheckedIOException of a {@link CheckpointException}, if a file of the model was
   *     changed meanwhile
   */
  private <T> T onFiles(Work<T> work) {
    try {
      T made;
      try {
        made = work.run();
      } catch (NotFiniteException e) {
        throw notFinite(e);
      } catch (InternalError e) {
        if (Checkpoint.isUnreadablePage(e)) {
          throw checkpoint.unreadable(e);
        }
        throw e;
      }
      requireUnchanged();
      return made;
    } catch (CheckpointException e) {
      throw new UncheckedIOException(e.getMessage(), e);
    }
  }

  /**
   * That no other program has written to the model's files since they were opened. Runs see to it
   * themselves; this is for those who read a {@link Readout} or write through a {@link Batcher}.
   *
   * @throws UncheckedIOException of a {@link CheckpointException}, if one has; the message names
   *     the file
   */
  public void requireUnchanged() {
    try {
      checkpoint.checkUnchanged();
    } catch (CheckpointException e) {
      throw new UncheckedIOException(e.getMessage(), e);
    }
  }

  /**
   * @param passedOver why a GPU that is there was not taken; empty if that is not so
   * @param notes what the user should know of the GPU
   */
  private record Opened(Ops ops, Transformer model, String passedOver, List<String> notes) {
    String device() {
      return ops.device()
          + (passedOver.isEmpty() ? "" : " (not the GPU: %s)".formatted(passedOver));
    }
  }

  private static Opened open(
      Options options, Checkpoint checkpoint, Tokenizer tokenizer, Progress progress) {
    return switch (options.backend()) {
      case CPU -> cpu(options, checkpoint, progress, "");
      case CUDA -> cuda(options, checkpoint, tokenizer, progress);
      case AUTO -> {
        CudaDriver driver = CudaDriver.find();
        if (driver.cards().isEmpty()) {
          yield cpu(options, checkpoint, progress, driver.failure());
        }
        try {
          yield cuda(options, checkpoint, tokenizer, progress);
        } catch (BackendException | GpuException e) {
          String why = String.valueOf(e.getMessage()).lines().findFirst().orElse("");
          yield cpu(options, checkpoint, progress, why);
        }
      }
    };
  }

  private static Opened cpu(
      Options options, Checkpoint checkpoint, Progress progress, String passedOver) {
    int threads = options.threads();
    Ops ops =
        new CpuOps(
            threads == 0 ? Runtime.getRuntime().availableProcessors() : threads,
            options.precision(),
            options.vectorBits());
    return opened(ops, () -> new Transformer(checkpoint, ops, progress), passedOver, List.of());
  }

  /** Closes the backend if the model does not load. */
  private static Opened opened(
      Ops ops, Supplier<Transformer> model, String passedOver, List<String> notes) {
    try {
      return new Opened(ops, model.get(), passedOver, notes);
    } catch (Throwable e) {
      try {
        ops.close();
      } catch (GpuException closing) {
        e.addSuppressed(closing);
      }
      throw e;
    }
  }

  private static Opened cuda(
      Options options, Checkpoint checkpoint, Tokenizer tokenizer, Progress progress) {
    Gpt2Config config = checkpoint.config();
    requireHeads(config);
    requireActivation(config);
    CudaOps ops;
    List<String> notes = new ArrayList<>();
    try {
      KernelVerdicts verdicts = FirstContact.of(options.device(), options.firstContact());
      notes.addAll(verdicts.notes());
      ops =
          new CudaOps(
              options.device(),
              options.precision(),
              options.gemm(),
              verdicts,
              config,
              options.kernels());
      notes.addAll(ops.choice().map(VerdictChoice::warnings).orElse(List.of()));
    } catch (GpuMemoryException e) {
      throw e;
    } catch (GpuException e) {
      throw new BackendException("%s (--backend cpu)".formatted(e.getMessage()));
    }
    return opened(
        ops,
        () -> {
          ops.requireRoom(config, checkpoint.has("lm_head.weight"));
          Transformer model = new Transformer(checkpoint, ops, progress);
          try {
            ops.choice()
                .flatMap(
                    choice ->
                        new Canary(options, checkpoint, tokenizer, choice.card())
                            .check(model, choice.key()))
                .ifPresent(notes::add);
            return model;
          } catch (Throwable e) {
            model.close();
            throw e;
          }
        },
        "",
        notes);
  }

  private static void requireHeads(Gpt2Config config) {
    if (config.headDim() % 8 != 0 || config.headDim() > 128) {
      throw new BackendException(
          "heads %d wide: the GPU takes multiples of 8 up to 128 (--backend cpu)"
              .formatted(config.headDim()));
    }
  }

  private static void requireActivation(Gpt2Config config) {
    if (!CudaOps.computes(config.activation())) {
      throw new BackendException(
          "activation_function %s: no GPU kernel computes it (--backend cpu)"
              .formatted(config.activation().configName()));
    }
  }

  /**
   * @param notes what the user should know of the tokenizer
   */
  private record Words(Tokenizer tokenizer, List<String> notes) {}

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
    return run(Request.text(prompt).sampling(sampling).tokens(tokens).attention(selection))
        .getFirst();
  }

  /** Reads {@code text} and keeps the chosen attention; writes nothing. */
  public Generation read(String text, AttentionSelection selection) {
    return run(Request.text(text).tokens(0).attention(selection)).getFirst();
  }

  /**
   * Does what {@code request} says.
   *
   * @return one run for each sample
   * @throws IllegalArgumentException if the request does not fit the model: an id outside the
   *     vocabulary, more tokens than the context holds, a layer or head that does not exist
   * @throws java.util.concurrent.CancellationException if it was ended before the prompt was read
   * @throws GpuException if the GPU fails before a token is written; a {@link
   *     dev.loupe.kernels.GpuMemoryException} if it has no room for the run
   * @throws BrokenRunException if it fails later; has what was made so far
   * @throws NotFiniteException if the model computes NaN or infinity; the message names a weight
   *     that holds one
   */
  public List<Generation> run(Request request) {
    if (request.mask != Mask.CAUSAL) {
      throw new IllegalArgumentException(
          "without the causal mask a text can only be compared, or kept in an activation cache");
    }
    if (request.interventions.none()) {
      return run(model, request, this::valueNorms);
    }
    try (AblatedModel changed = changed(request)) {
      return run(changed.model(), request, Loupe::noValueNorms);
    }
  }

  /**
   * For runs of several callers that share passes.
   *
   * @param slots texts to write at once, 1 to 1024; where the caches of so many would take more
   *     than a quarter of the machine's memory, there are fewer
   */
  public Batcher batcher(int slots) {
    return new Batcher(this, model, tokenizer, ops instanceof CudaOps, slots, this::notFinite);
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
   * @throws GpuException if the GPU fails; a {@link dev.loupe.kernels.GpuMemoryException} if it has
   *     no room for such passes
   */
  public BatchReader batchReader(
      Optional<AttentionSelection> attention, boolean logprobs, int tokens) {
    return new BatchReader(model, tokenizer, attention, logprobs, tokens, this::valueNorms);
  }

  private List<Generation> run(
      Transformer model, Request request, Supplier<ValueNorms> valueNorms) {
    return onFiles(
        () -> {
          try (Session session = new Session(model, tokenizer, info, request, valueNorms)) {
            return session.run();
          }
        });
  }

  private int[] idsToRead(Request request) {
    int[] ids = Session.promptIds(request, tokenizer, model.config());
    int most = model.config().nPositions();
    if (ids.length > most) {
      throw new IllegalArgumentException(
          "the text has %s and the model reads %d: shorten it by %d"
              .formatted(Count.of(ids.length, "token"), most, ids.length - most));
    }
    return ids;
  }

  private AblatedModel changed(Request request) {
    Gpt2Config config = request.interventions.of(model.config());
    if (ops instanceof CudaOps) {
      requireHeads(config);
    }
    int[] ids = Session.promptIds(request, tokenizer, config);
    int[] prompt = Arrays.copyOf(ids, request.promptOf(ids.length));
    return new AblatedModel(model, checkpoint, request.interventions, prompt);
  }

  /**
   * Reads a text and keeps what its attention worked on, with the request's interventions and mask.
   * Nothing is written; of the request, its text or ids, prompt length, interventions, mask,
   * logprobs and listener count. The caller closes it, before this model.
   *
   * @throws IllegalArgumentException if the text is longer than the context, or the interventions
   *     do not fit the model
   * @throws java.util.concurrent.CancellationException if the listener ended it
   */
  public ActivationCache cache(Request request) {
    int[] ids = idsToRead(request);
    return onFiles(
        () -> {
          if (request.interventions.none()) {
            return new ActivationCache(model, tokenizer, info, request, ids);
          }
          try (AblatedModel changed = changed(request)) {
            return new ActivationCache(changed.model(), tokenizer, info, request, ids);
          }
        });
  }

  /**
   * For the residual stream and the logits of a text, with the request's interventions and mask.
   * Nothing is written; of the request, its text or ids, prompt length, interventions, mask and
   * listener count. The caller closes it, before this model.
   *
   * @throws IllegalArgumentException if the text is longer than the context, or the interventions
   *     do not fit the model
   */
  public Readout readout(Request request) {
    int[] ids = idsToRead(request);
    if (request.interventions.none()) {
      return new Readout(model, request, ids, null, this::notFinite);
    }
    AblatedModel changed = changed(request);
    try {
      return new Readout(changed.model(), request, ids, changed, this::notFinite);
    } catch (Throwable e) {
      changed.close();
      throw e;
    }
  }

  /**
   * Reads a text twice, by the model as it is and with the request's interventions and mask; of the
   * request, only its text or ids and these count.
   *
   * @throws IllegalArgumentException if the text is longer than the context, or the interventions
   *     do not fit the model
   */
  public Comparison compare(Request request) {
    int[] ids = Session.promptIds(request, tokenizer, model.config());
    Request plain = Request.ids(ids).logprobs(0);
    Request changed =
        Request.ids(ids).logprobs(0).interventions(request.interventions).mask(request.mask);
    try (ActivationCache before = cache(plain);
        ActivationCache after = cache(changed)) {
      return Comparison.of(before, after);
    } catch (NotFiniteException e) {
      throw notFinite(e);
    }
  }

  /**
   * Why the model says what it says after one token of what {@code request} reads; of the request,
   * only its text or ids and its listener count.
   *
   * @param position of the token, from 0; negative for the last
   * @param target the token in question; negative for the one that follows in the text, or the
   *     likeliest at its end
   * @param top how many tokens are named after each layer
   * @throws IllegalArgumentException if the text has no such position, is longer than the context,
   *     or the vocabulary has no such token
   */
  public Lens lens(Request request, int position, int target, int top) {
    Gpt2Config config = model.config();
    int[] ids = Session.promptIds(request, tokenizer, config);
    int at = position < 0 ? ids.length - 1 : position;
    if (at >= ids.length) {
      throw new IllegalArgumentException(
          "no token %d: the text has tokens 0..%d".formatted(at, ids.length - 1));
    }
    if (at >= config.nPositions()) {
      throw new IllegalArgumentException(
          "token %d: the model reads %d tokens".formatted(at, config.nPositions()));
    }
    if (target >= 0) {
      tokenizer.requireToken(target);
    }
    if (top < 0) {
      throw new IllegalArgumentException("the top %d tokens: not 0 or more".formatted(top));
    }
    int asked = target < 0 && at + 1 < ids.length ? ids[at + 1] : target;
    int[] shown = Arrays.copyOf(ids, Math.min(ids.length, at + 2));
    List<Token> tokens = Sample.tokens(tokenizer, shown);
    return onFiles(
        () -> {
          try (LensSession session =
              new LensSession(model, checkpoint, tokenizer, request, Arrays.copyOf(ids, at + 1))) {
            return session.look(info, tokens, asked, top);
          }
        });
  }

  /** {@link #heads(Request)} on {@code text}, which may be long, or empty. */
  public HeadSurvey heads(String text) {
    return heads(Request.text(text));
  }

  /**
   * What each head does, on the text of {@code request} in windows of the context, and on repeated
   * random tokens. Nothing is written. If the listener ends the reading, what was read of the text
   * counts.
   *
   * @throws IllegalArgumentException if an id is outside the vocabulary
   * @throws java.util.concurrent.CancellationException if the listener ended it before the random
   *     tokens were read
   * @throws GpuException if the GPU fails
   */
  public HeadSurvey heads(Request request) {
    return onFiles(() -> HeadSurvey.of(this, request));
  }

  private static ValueNorms noValueNorms() {
    throw new IllegalArgumentException(
        "norms of values are those of the model as it is: ask for them without changing heads");
  }

  private synchronized ValueNorms valueNorms() {
    if (valueNorms == null) {
      valueNorms = new ValueNorms(checkpoint);
    }
    return valueNorms;
  }

  /** What was opened and what it runs on. */
  public ModelInfo info() {
    return info;
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
    return ops instanceof CudaOps cuda
        ? cuda.choice().map(VerdictChoice::fastest).orElse(List.of())
        : List.of();
  }

  /** Bytes of the GPU's memory that are in use, by whomever; empty on the CPU. */
  public OptionalLong deviceBytesInUse() {
    return ops.deviceBytesInUse();
  }

  public Tokenizer tokenizer() {
    return tokenizer;
  }

  /** {@code cause}, with the first weight that explains it. */
  private NotFiniteException notFinite(NotFiniteException cause) {
    requireUnchanged();
    for (StoredTensor tensor : checkpoint.tensors()) {
      float[] row = new float[Math.toIntExact(tensor.shape().getLast())];
      for (long i = 0; i < tensor.elements(); i += row.length) {
        tensor.read(i, row, 0, row.length);
        for (int j = 0; j < row.length; j++) {
          if (!Float.isFinite(row[j])) {
            return new NotFiniteException(
                "%s: %s holds %s at element %d, so the model computes nothing of use"
                    .formatted(info.source(), tensor.name(), row[j], i + j));
          }
        }
      }
    }
    String distrust =
        ops instanceof CudaOps cuda ? cuda.choice().map(VerdictChoice::distrust).orElse("") : "";
    return new NotFiniteException(
        "%s: all weights are finite, but %s: they overflow 32-bit floats%s"
            .formatted(
                info.source(),
                cause.getMessage(),
                distrust.isEmpty() ? "" : ", or the GPU computes wrongly" + distrust));
  }

  @Override
  public void close() {
    try (checkpoint;
        tokenizer;
        ops;
        model) { // in reverse, and all of them whatever a lost GPU says
    }
  }
}
