package dev.loupe.generate;

import com.sun.management.OperatingSystemMXBean;
import dev.loupe.attention.AttentionSelection.Part;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.GpuMemoryException;
import dev.loupe.model.AblatedModel;
import dev.loupe.model.Transformer;
import dev.loupe.model.Workspace;
import dev.loupe.ops.Ops;
import dev.loupe.ops.SessionSize;
import dev.loupe.ops.TensorArena;
import dev.loupe.sampling.NotFiniteException;
import dev.loupe.weights.config.Gpt2Config;
import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.IntStream;

/**
 * The loop that reads prompts and writes tokens, for one caller or for many at once. All runs share
 * its forward passes, so that what a pass reads of the weights serves all of them (continuous
 * batching: Yu et al., "Orca: A Distributed Serving System for Transformer-Based Generative
 * Models", OSDI 2022). A new run is in the next pass, and one that has ended is in no more. A row's
 * result does not depend on the rows beside it, so each run is, token by token and map by map, what
 * it is alone.
 *
 * <p>A pass has one row of each text that is being written, and a bounded number of rows of
 * prompts, so that a long one does not keep the others waiting. A text has a slot, its place in the
 * KV cache. Each run has one if there are enough. Other samples of a run take slots that are left,
 * and lose them again when another run comes; a text that lost its slot is read anew when it gets
 * one.
 *
 * <p>There is no thread of its own. Each caller chooses its tokens and tells its listener on its
 * own thread; who comes last carries out the pass for all (flat combining: Hendler, Incze, Shavit
 * and Tzafrir, SPAA 2010). Who takes longer than the last pass did is not waited for, and is in a
 * later one: a slow listener costs the others little.
 *
 * <p>On a GPU a row's bits depend on how many rows a pass has. So each prompt is read by a pass of
 * its own. Decoding steps, whose kernels keep each row's bits, are shared by all runs ({@link
 * DeviceDecoder}). Where the host chooses the tokens of a run of more samples than there are slots,
 * its passes have fewer rows than alone, and its bits may differ.
 *
 * <p>Runs that change heads share no passes, since their weights differ. On a GPU, runs that keep
 * attention share none either, since each has a step of its own shape.
 *
 * <p>Safe for use by several threads. It does not own the model: close this first.
 */
public final class Scheduler implements AutoCloseable {
  /** Most rows of a pass that are not the only one of their text, where runs share passes. */
  static final int PROMPT_ROWS = 64;

  private final OpenModel open;
  private final Loop loop;
  private final AtomicBoolean closed = new AtomicBoolean();

  private Scheduler(OpenModel open, Loop loop) {
    this.open = open;
    this.loop = loop;
  }

  /**
   * A scheduler for many callers.
   *
   * @param slots texts to write at once, 1 to 1024; where the caches of so many would take more
   *     than a quarter of the machine's memory, or more than a GPU has, there are fewer
   * @throws dev.loupe.cuda.driver.GpuMemoryException if the GPU has no room for one
   */
  public static Scheduler shared(OpenModel open, int slots) {
    if (slots < 1 || slots > 1024) {
      throw new IllegalArgumentException("%d slots: not 1 to 1024".formatted(slots));
    }
    Transformer model = open.transformer();
    Gpt2Config config = model.config();
    if (model.ops().mixesRuns()) {
      int some = Math.min(slots, roomFor(config));
      int rows = some + PROMPT_ROWS;
      SessionSize size =
          new SessionSize(config, config.nPositions(), some, rows, true, Optional.empty(), 0);
      return shared(open, Workspace.of(model, size, rows), some, PROMPT_ROWS);
    }
    for (SessionSize size : sizes(config, slots)) {
      try {
        return shared(open, Workspace.of(model, size, size.rows()), size.samples(), size.rows());
      } catch (GpuMemoryException e) {
        if (size.samples() == 1) {
          throw e;
        }
      }
    }
    throw new AssertionError("the last of them is of one text");
  }

  /**
   * Sessions that a scheduler on a GPU tries one after the other: of {@code slots} texts, of half
   * as many, and so on to one; none for no slots.
   */
  public static List<SessionSize> sizes(Gpt2Config config, int slots) {
    int logits = Math.min(Passes.LOGIT_ROWS, config.nPositions());
    return IntStream.iterate(slots, some -> some > 0, some -> some / 2)
        .mapToObj(
            some ->
                new SessionSize(
                    config, config.nPositions(), some, logits, true, Optional.empty(), 0))
        .toList();
  }

  private static Scheduler shared(OpenModel open, Workspace workspace, int slots, int promptRows) {
    Transformer model = open.transformer();
    Passes passes =
        new Passes(model, workspace, promptRows, open.tokenizer().ids(), Optional.empty());
    return new Scheduler(open, new Loop(open, model, passes, slots, true));
  }

  /** How many caches of a whole context take a quarter of the machine's memory; at least 1. */
  private static int roomFor(Gpt2Config config) {
    long bytes = 8L * config.nLayer() * config.nEmbd() * config.nPositions(); // keys and values
    long memory =
        ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class).getTotalMemorySize();
    return Math.clamp(memory / 4 / bytes, 1, Integer.MAX_VALUE);
  }

  /** Texts that can be written at once: those asked for, or fewer where memory is short. */
  public int slots() {
    return loop.slots();
  }

  /**
   * Does what {@code request} says, beside what others run. The listener is called on this thread;
   * if it ends one sample, the others of the request end too.
   *
   * @return one generation for each sample
   * @throws IllegalArgumentException if the request does not fit the model
   * @throws CancellationException if it was ended, by the listener or an interrupt, before a token
   *     was written
   * @throws NotFiniteException if the model computes NaN or infinity; the message names a weight
   *     that explains it
   * @throws dev.loupe.cuda.driver.GpuException if the GPU fails before a token is written
   * @throws BrokenRunException if it fails later; has what was made so far
   */
  public List<Generation> run(GenerateRequest request) {
    boolean shares =
        request.interventions.none()
            && (request.attention.isEmpty() || open.transformer().ops().mixesRuns());
    if (!shares) {
      return alone(open, request);
    }
    return open.onFiles(() -> share(request, loop));
  }

  private List<Generation> share(GenerateRequest request, Loop all) {
    Run run = new Run(open, open.config(), request);
    if (run.plan().isEmpty()) {
      return all.carryOut(run);
    }
    Ops ops = open.transformer().ops();
    int keys = Math.min(run.longest(), all.capacity());
    try (TensorArena arena = ops.arena()) { // its own: the workspace outlives the run
      run.record(ops, arena, keys, run.attentionScratch(keys, ops));
      return all.carryOut(run);
    }
  }

  /**
   * Does what {@code request} says with memory of its own, as large as it needs. Throws what {@link
   * #run} does.
   *
   * @return one generation for each sample
   * @throws dev.loupe.ops.BackendException if the backend can't run the model with the request's
   *     heads
   */
  public static List<Generation> alone(OpenModel open, GenerateRequest request) {
    return open.onFiles(
        () -> {
          if (request.interventions.none()) {
            return alone(open, open.transformer(), request);
          }
          if (request.attention.filter(kept -> kept.keeps(Part.VALUE_NORMS)).isPresent()) {
            throw new IllegalArgumentException(
                "norms of values are those of the model as it is: ask for them without changing heads");
          }
          try (AblatedModel ablated = open.ablated(request.interventions, request.prompt)) {
            return alone(open, ablated.model(), request);
          }
        });
  }

  private static List<Generation> alone(
      OpenModel open, Transformer model, GenerateRequest request) {
    Gpt2Config config = model.config();
    Run run = new Run(open, config, request);
    int context = Math.min(run.longest(), config.nPositions());
    try (Workspace workspace =
        Workspace.of(
            model,
            size(run, model, context),
            size(run, model, SessionSize.kept(context, config.nPositions())))) {
      SessionSize size = workspace.size();
      run.record(model.ops(), workspace.arena(), size.positions(), size.attentionScratch());
      Passes passes = new Passes(model, workspace, size.rows(), open.tokenizer().ids(), run.plan());
      Loop alone = new Loop(open, model, passes, request.samples, false);
      try {
        List<Generation> generations = alone.carryOut(run);
        workspace.keep();
        return generations;
      } catch (CancellationException e) { // between two passes, with nothing amiss
        workspace.keep();
        throw e;
      }
    }
  }

  private static SessionSize size(Run run, Transformer model, int context) {
    return new SessionSize(
        model.config(),
        context,
        run.request.samples,
        run.request.logprobs < 0 ? 1 : Math.min(Passes.LOGIT_ROWS, context),
        run.tokens > 0,
        run.plan(),
        run.attentionScratch(context, model.ops()));
  }

  /** Gives its memory back, for when nothing runs. */
  @Override
  public void close() {
    if (!closed.getAndSet(true)) {
      loop.close();
    }
  }

  /** The loop of a run: prefill, then one token of each sample a pass. */
  private static final class Loop implements AutoCloseable {
    private final OpenModel open;
    private final Passes passes;
    private final Turns turns;

    /**
     * @param model the open model, or it with other heads
     * @param slots sequences that can be written at once
     * @param shared whether several runs take part in it at once
     */
    Loop(OpenModel open, Transformer model, Passes passes, int slots, boolean shared) {
      this.open = open;
      this.passes = passes;
      turns = new Turns(model.ops(), passes, slots, shared);
    }

    int slots() {
      return turns.slots();
    }

    /** Positions that a sequence has room for. */
    int capacity() {
      return passes.kv().capacity();
    }

    /**
     * Reads the prompt of a run and writes its texts, on the calling thread.
     *
     * @return one generation for each sample
     */
    List<Generation> carryOut(Run run) {
      turns.enter(run);
      try {
        while (!run.promptRead()) {
          turns.takePart(run);
          if (!run.promptRead()) {
            run.take();
          }
        }
        run.take();
        while (!run.ended()) {
          turns.takePart(run);
          run.take();
        }
      } catch (GpuException e) {
        if (!run.breakOff()) {
          throw e; // before the first token
        }
        throw new BrokenRunException(run.results(open.info()), e);
      } finally {
        turns.leave(run);
      }
      return run.results(open.info());
    }

    @Override
    public void close() {
      passes.close();
    }
  }
}
