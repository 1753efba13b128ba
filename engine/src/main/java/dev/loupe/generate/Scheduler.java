package dev.loupe.generate;

import com.sun.management.OperatingSystemMXBean;
import dev.loupe.attention.ValueNorms;
import dev.loupe.generate.Passes.Piece;
import dev.loupe.kernels.GpuException;
import dev.loupe.model.AblatedModel;
import dev.loupe.model.Activations;
import dev.loupe.model.Transformer;
import dev.loupe.model.Workspace;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Ops;
import dev.loupe.ops.SessionSize;
import dev.loupe.ops.StepPlan;
import dev.loupe.ops.Steps;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.sampling.NotFiniteException;
import dev.loupe.weights.Gpt2Config;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

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
 * <p>Two kinds of runs do not share passes: those that change heads, since their weights differ,
 * and those on a GPU, where steps run ahead of the host; there, one run goes at a time.
 *
 * <p>Safe for use by several threads. It does not own the model: close this first.
 */
public final class Scheduler implements AutoCloseable {
  /** Most rows of a pass that are not the only one of their text, where runs share passes. */
  static final int PROMPT_ROWS = 64;

  /** Nanoseconds for which everybody is waited for, however short a pass is. */
  private static final long LEAST_PATIENCE = 1_000_000;

  private final OpenModel open;
  private final Transformer model;
  private final boolean shared;
  private final @Nullable Passes passes; // null where each run has its own scheduler

  private final ReentrantLock lock;
  // all below is under the lock
  private final List<Run> runs = new ArrayList<>(); // in order of arrival
  private final @Nullable Sequence[] slots;
  private final @Nullable Run[] contents; // whose prompt a slot may still hold
  private boolean passing;
  private boolean closed;
  private long patience; // until when busy ones are waited for

  private Scheduler(
      OpenModel open,
      Transformer model,
      ReentrantLock lock,
      boolean shared,
      int slots,
      @Nullable Passes passes) {
    this.open = open;
    this.model = model;
    this.lock = lock;
    this.shared = shared;
    this.passes = passes;
    this.slots = new Sequence[slots];
    contents = new Run[slots];
  }

  /**
   * A scheduler for many callers.
   *
   * @param slots texts to write at once, 1 to 1024; where the caches of so many would take more
   *     than a quarter of the machine's memory, there are fewer
   * @param oneAtATime whether runs go one after the other
   */
  public static Scheduler shared(OpenModel open, int slots, boolean oneAtATime) {
    if (slots < 1 || slots > 1024) {
      throw new IllegalArgumentException("%d slots: not 1 to 1024".formatted(slots));
    }
    Transformer model = open.transformer();
    if (oneAtATime) {
      return new Scheduler(open, model, new ReentrantLock(), true, 1, null);
    }
    Gpt2Config config = model.config();
    int some = Math.min(slots, roomFor(config));
    int rows = some + PROMPT_ROWS;
    SessionSize size =
        new SessionSize(config, config.nPositions(), some, rows, true, Optional.empty(), 0);
    Passes passes = new Passes(model, Workspace.of(model, size, rows), PROMPT_ROWS);
    return new Scheduler(open, model, new ReentrantLock(), true, some, passes);
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
    return slots.length;
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
   * @throws dev.loupe.kernels.GpuException if the GPU fails before a token is written
   * @throws BrokenRunException if it fails later; has what was made so far
   */
  public List<Generation> run(GenerateRequest request) {
    if (passes == null) {
      synchronized (this) {
        return alone(open, request);
      }
    }
    if (!request.interventions.none()) {
      return alone(open, request);
    }
    return open.onFiles(() -> share(request, passes));
  }

  private List<Generation> share(GenerateRequest request, Passes all) {
    Run run =
        new Run(
            request, model.config(), open.tokenizer(), norms(open, request), lock.newCondition());
    Optional<AttentionPlan> plan = run.plan();
    if (plan.isEmpty()) {
      return carryOut(run, all);
    }
    Ops ops = model.ops();
    int keys = Math.min(run.longest(), all.kv().capacity());
    try (TensorArena arena = ops.arena()) { // its own: the workspace outlives the run
      run.recording(new Recording(run, ops, arena, keys, Recording.scratchBytes(plan, keys, ops)));
      return carryOut(run, all);
    }
  }

  /**
   * Does what {@code request} says with memory of its own, as large as it needs.
   *
   * @return one generation for each sample
   */
  public static List<Generation> alone(OpenModel open, GenerateRequest request) {
    return open.onFiles(
        () -> {
          if (request.interventions.none()) {
            return alone(open, open.transformer(), request);
          }
          if (Recording.needsNorms(request.attention)) {
            throw new IllegalArgumentException(
                "norms of values are those of the model as it is: ask for them without changing heads");
          }
          try (AblatedModel ablated = open.ablated(request.interventions, request.prompt)) {
            return alone(open, ablated.model(), request);
          }
        });
  }

  private static @Nullable ValueNorms norms(OpenModel open, GenerateRequest request) {
    return Recording.needsNorms(request.attention) ? open.valueNorms() : null;
  }

  private static List<Generation> alone(
      OpenModel open, Transformer model, GenerateRequest request) {
    Gpt2Config config = model.config();
    ReentrantLock lock = new ReentrantLock();
    Run run = new Run(request, config, open.tokenizer(), norms(open, request), lock.newCondition());
    int context = Math.min(run.longest(), config.nPositions());
    try (Workspace workspace =
        Workspace.of(
            model,
            size(run, model, context),
            size(run, model, SessionSize.kept(context, config.nPositions())))) {
      SessionSize size = workspace.size();
      if (run.plan().isPresent()) {
        run.recording(
            new Recording(
                run, model.ops(), workspace.arena(), size.positions(), size.attentionScratch()));
      }
      Passes passes = new Passes(model, workspace, size.rows());
      Scheduler scheduler = new Scheduler(open, model, lock, false, request.samples, passes);
      try {
        List<Generation> generations = scheduler.carryOut(run, passes);
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
        Recording.scratchBytes(run.plan(), context, model.ops()));
  }

  /** The loop. */
  private List<Generation> carryOut(Run run, Passes all) {
    enter(run);
    try {
      while (!run.promptRead()) {
        takePart(run);
        if (!run.promptRead()) {
          run.take();
        }
      }
      Optional<Steps> steps = steps(run, all);
      if (steps.isPresent()) {
        decodeOnDevice(run, all, steps.get());
      } else {
        run.take();
        while (!run.ended()) {
          takePart(run);
          run.take();
        }
      }
    } catch (GpuException e) {
      if (!run.breakOff()) {
        throw e; // before the first token
      }
      throw new BrokenRunException(run.results(open.info()), e);
    } finally {
      leave(run);
    }
    return run.results(open.info());
  }

  /**
   * Decoding steps of a run on a device; empty where the host chooses the tokens: on a CPU, and
   * where the choice takes what the device does not bring along, such as how often a token was
   * written, which may not be chosen yet, or what heads make of a new one.
   */
  private Optional<Steps> steps(Run run, Passes all) {
    GenerateRequest request = run.request;
    boolean onHost =
        run.tokens == 0
            || request.sampling.countsTokens()
            || run.valueNorms() != null
            || request.minTokens > 0;
    return onHost ? Optional.empty() : model.ops().steps(() -> plan(run, all.workspace()));
  }

  private StepPlan plan(Run run, Workspace workspace) {
    GenerateRequest request = run.request;
    Activations a = Activations.forSteps(workspace.arena(), model.config(), request.samples);
    Tensor rows = workspace.logits().rows(0, request.samples);
    return new StepPlan(
        (batch, hook) -> {
          model.forward(batch, workspace.kv(), a, Mask.CAUSAL, hook);
          model.logits(a, 0, rows);
        },
        workspace.kv(),
        rows,
        request.sampling,
        open.tokenizer().ids(),
        run.sequences.getFirst().sample.seen,
        request.firstSample,
        run.prompt.length,
        model.config().nPositions(),
        run.tokens + (run.recording() == null ? 0 : 1),
        request.logprobs >= 0,
        run.plan());
  }

  private void decodeOnDevice(Run run, Passes all, Steps steps) {
    try (steps) {
      run.requireFinite();
      float[] row = run.request.logprobs < 0 ? null : new float[model.config().vocabSize()];
      new DeviceDecoder(run, steps, all::slide, model.config().nPositions(), row).decode();
    }
  }

  private void enter(Run run) {
    lock.lock();
    try {
      runs.add(run);
    } finally {
      lock.unlock();
    }
  }

  private void leave(Run run) {
    lock.lock();
    try {
      runs.remove(run);
      run.busy = false;
      run.ready = false;
      run.sequences.forEach(this::free);
      arrange();
      wakeOne();
    } finally {
      lock.unlock();
    }
  }

  /** Returns when the run was part of a pass, or its thread is interrupted. */
  private void takePart(Run run) {
    lock.lock();
    try {
      run.busy = false;
      run.noteOver();
      run.sequences.stream().filter(sequence -> sequence.over).forEach(this::free);
      run.passed = false;
      run.ready = true;
      arrange();
      while (!run.passed) {
        if (run.inPass) {
          run.turn.awaitUninterruptibly();
          continue;
        }
        wakeOne();
        long wait = timeToWait(run);
        if (wait <= 0) {
          lead(run);
          continue;
        }
        try {
          long _ = run.turn.awaitNanos(wait);
        } catch (InterruptedException e) {
          Thread.currentThread().interrupt();
          if (!run.inPass && !run.passed) {
            run.ready = false;
            return;
          }
        }
      }
      run.rethrow();
    } finally {
      lock.unlock();
    }
  }

  private boolean anyBusy() {
    return runs.stream().anyMatch(run -> run.busy);
  }

  /** Nanoseconds until a run may lead a pass, if nothing happens before. */
  private long timeToWait(Run run) {
    if (passing || !run.hasSlot()) {
      return Long.MAX_VALUE;
    }
    return anyBusy() ? patience - System.nanoTime() : 0;
  }

  /** If nobody is waited for, one of those who are ready has to go on. */
  private void wakeOne() {
    if (!passing && !anyBusy()) {
      runs.stream()
          .filter(run -> run.ready && run.hasSlot())
          .findFirst()
          .ifPresent(run -> run.turn.signal());
    }
  }

  private void free(Sequence sequence) {
    if (sequence.slot >= 0) {
      if (sequence.hasSlid()) { // its cache does not begin with the prompt
        contents[sequence.slot] = null;
      }
      slots[sequence.slot] = null;
      sequence.slot = -1;
    }
  }

  /**
   * Gives slots away, unless a pass is under way: one to each run, in order of arrival, then those
   * that are left to runs that have the fewest.
   */
  private void arrange() {
    if (passing || passes == null) {
      return;
    }
    for (Run run : runs) {
      if (run.slots() == 0 && run.waiting() != null) {
        int slot = freeSlot();
        if (slot < 0) {
          slot = takenSlot();
        }
        if (slot < 0) {
          break;
        }
        give(slot, run, passes.kv());
      }
    }
    for (int slot = freeSlot(); slot >= 0; slot = freeSlot()) {
      Optional<Run> next =
          runs.stream()
              .filter(run -> run.waiting() != null && holderOfPrompt(run, passes.kv()) != null)
              .min(Comparator.comparingInt(Run::slots));
      if (next.isEmpty()) {
        return;
      }
      give(slot, next.get(), passes.kv());
    }
  }

  private int freeSlot() {
    for (int slot = 0; slot < slots.length; slot++) {
      if (slots[slot] == null) {
        return slot;
      }
    }
    return -1;
  }

  /** The slot of the shortest text of a run that has several, which loses it; -1 if none has. */
  private int takenSlot() {
    KvCache kv = Objects.requireNonNull(passes).kv();
    Optional<Sequence> loser =
        Arrays.stream(slots)
            .filter(Objects::nonNull)
            .filter(sequence -> sequence.run.slots() > 1)
            .min(Comparator.comparingInt(sequence -> kv.length(sequence.slot)));
    if (loser.isEmpty()) {
      return -1;
    }
    int slot = loser.get().slot;
    free(loser.get());
    return slot;
  }

  /** A sequence of the run whose slot holds the prompt, all but the last token. */
  private static @Nullable Sequence holderOfPrompt(Run run, KvCache kv) {
    for (Sequence sequence : run.sequences) {
      boolean holds =
          sequence.slot >= 0
              && !sequence.hasSlid()
              && kv.length(sequence.slot) >= run.promptRows() - 1;
      if (holds) {
        return sequence;
      }
    }
    return null;
  }

  /**
   * The text starts from what is known of its prompt. Right after the pass that read the prompt,
   * its logits are known too; later, the last token is read again.
   */
  private void give(int slot, Run run, KvCache kv) {
    Sequence sequence = Objects.requireNonNull(run.waiting());
    int known = run.promptRows() - 1;
    Sequence holder = holderOfPrompt(run, kv);
    if (sequence.hasSlid()) {
      known = 0;
    } else if (holder != null
        && holder.due
        && run.inPass
        && holder.sample.length() == run.prompt.length) {
      kv.copySequence(model.ops(), holder.slot, slot);
      known = run.promptRows();
      sequence.logits = Objects.requireNonNull(holder.logits).clone();
      sequence.due = true;
    } else if (contents[slot] != run || kv.length(slot) < known) {
      if (holder == null) {
        known = 0;
      } else {
        kv.copySequence(model.ops(), holder.slot, slot);
      }
    }
    kv.truncate(slot, known);
    contents[slot] = run;
    slots[slot] = sequence;
    sequence.slot = slot;
    run.turn.signal();
  }

  /** Carries out a pass for all who are ready, on the thread of one of them. */
  private void lead(Run leader) {
    Passes all = Objects.requireNonNull(passes);
    List<Piece> pieces = all.plan(runs.stream().filter(run -> run.ready).toList());
    Set<Run> part = new LinkedHashSet<>();
    pieces.forEach(piece -> part.add(piece.sequence().run));
    for (Run run : runs) {
      run.busy = false;
    }
    for (Run run : part) {
      run.inPass = true;
      run.ready = false;
    }
    passing = true;
    lock.unlock();
    long start = System.nanoTime();
    Throwable failure = null;
    try {
      all.run(pieces, shared ? null : leader);
    } catch (Throwable e) { // each of those who took part throws it
      failure = e;
    } finally {
      lock.lock();
    }
    passing = false;
    long end = System.nanoTime();
    patience = end + Math.max(LEAST_PATIENCE, end - start);
    arrange(); // while those who took part still wait: their sequences are nobody else's
    for (Run run : part) {
      run.busy = true;
      run.inPass = false;
      run.passed = true;
      run.failure = failure == null ? run.failure : failure;
      run.turn.signal();
    }
    for (Run run : runs) {
      if (run.ready) {
        run.turn.signal(); // they wait for the others from now on
      }
    }
  }

  /** Gives its memory back, for when nothing runs. */
  @Override
  public void close() {
    lock.lock();
    try {
      if (passes != null && !closed) {
        passes.close();
      }
      closed = true;
    } finally {
      lock.unlock();
    }
  }
}
