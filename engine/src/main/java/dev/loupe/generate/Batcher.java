package dev.loupe.generate;

import com.sun.management.OperatingSystemMXBean;
import dev.loupe.Loupe;
import dev.loupe.generate.BatchedRun.Text;
import dev.loupe.model.Activations;
import dev.loupe.model.Transformer;
import dev.loupe.ops.AttentionTap;
import dev.loupe.ops.Batch;
import dev.loupe.ops.KvCache;
import dev.loupe.ops.Mask;
import dev.loupe.ops.Ops;
import dev.loupe.ops.SessionSize;
import dev.loupe.ops.Tensor;
import dev.loupe.ops.TensorArena;
import dev.loupe.sampling.NotFiniteException;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.Gpt2Config;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.UnaryOperator;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * Runs of several callers that share the passes of a model, so that what a pass reads of its
 * weights serves all of them (continuous batching: Yu et al., "Orca: A Distributed Serving System
 * for Transformer-Based Generative Models", OSDI 2022). Whoever comes is in the next pass, whoever
 * has ended is out of it. A row's result does not depend on the rows beside it, so each run is,
 * token by token, what {@link Loupe#run} gives.
 *
 * <p>A pass has one row of each text that is being written, and at most {@value #PROMPT_ROWS} of
 * prompts, so that a long one does not keep the others waiting. A text that is being written has a
 * slot, its place in the cache. Each run has one if there are enough; where slots are left, the
 * other samples of a run take them, and lose them again when another run comes. A text that lost
 * its slot is read anew when it gets one.
 *
 * <p>There is no thread of its own. Each caller chooses its tokens and tells its listener on its
 * own thread; who comes last carries out the pass for all (flat combining: Hendler, Incze, Shavit
 * and Tzafrir, SPAA 2010). Who takes longer than the last pass did is not waited for, and is in a
 * later one: a slow listener costs the others little.
 *
 * <p>On a GPU, where a text is written by steps that run ahead of the host, there is one slot, and
 * runs are those of {@link Loupe#run}, one at a time. So are, everywhere, but beside the others,
 * runs that keep attention, change heads or let the context slide.
 *
 * <p>Safe for use by several threads. It does not own the model: close this first.
 */
public final class Batcher implements AutoCloseable {
  /** Most rows of a pass that are not the only one of their text. */
  static final int PROMPT_ROWS = 64;

  /** Nanoseconds for which everybody is waited for, however short a pass is. */
  private static final long LEAST_PATIENCE = 1_000_000;

  private final Loupe loupe;
  private final Transformer model;
  private final Tokenizer tokenizer;
  private final UnaryOperator<NotFiniteException> notFinite;
  private final @Nullable Passes passes; // null where runs go one at a time

  private final ReentrantLock lock = new ReentrantLock();
  // all below is under the lock
  private final List<BatchedRun> runs = new ArrayList<>(); // in order of arrival
  private final Set<BatchedRun> ready = new LinkedHashSet<>(); // wait for a pass
  private final Set<BatchedRun> busy = new HashSet<>(); // were in the last pass, and will be back
  private final @Nullable Text[] texts; // of each slot
  private final @Nullable BatchedRun[] contents; // whose prompt a slot may still hold
  private boolean passing;
  private boolean closed;
  private long patience; // until when busy ones are waited for

  /**
   * @param notFinite says which weight explains it
   */
  public Batcher(
      Loupe loupe,
      Transformer model,
      Tokenizer tokenizer,
      boolean oneAtATime,
      int slots,
      UnaryOperator<NotFiniteException> notFinite) {
    if (slots < 1 || slots > 1024) {
      throw new IllegalArgumentException("%d slots: not 1 to 1024".formatted(slots));
    }
    this.loupe = loupe;
    this.model = model;
    this.tokenizer = tokenizer;
    this.notFinite = notFinite;
    int some = oneAtATime ? 1 : Math.min(slots, roomFor(model.config()));
    passes = oneAtATime ? null : new Passes(model, some);
    texts = new Text[some];
    contents = new BatchedRun[some];
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
    return texts.length;
  }

  /**
   * Does what {@code request} says, like {@link Loupe#run}, beside what others run. The listener is
   * called on this thread; if it ends one sample, the others of the request end too.
   *
   * @return one run for each sample
   * @throws IllegalArgumentException as Loupe's
   * @throws java.util.concurrent.CancellationException if it was ended, by the listener or an
   *     interrupt, before a token was written
   * @throws NotFiniteException as Loupe's
   */
  public List<Generation> run(Request request) {
    if (passes == null) {
      synchronized (this) {
        return loupe.run(request);
      }
    }
    if (request.attention.isPresent() || !request.interventions.none() || request.slide) {
      return loupe.run(request);
    }
    BatchedRun run = new BatchedRun(request, model.config(), tokenizer, lock.newCondition());
    enter(run);
    try {
      while (!run.ended()) {
        takePart(run);
        run.take();
      }
    } catch (NotFiniteException e) {
      throw notFinite.apply(e);
    } finally {
      leave(run);
    }
    loupe.requireUnchanged();
    return run.results(loupe.info());
  }

  private void enter(BatchedRun run) {
    lock.lock();
    try {
      runs.add(run);
    } finally {
      lock.unlock();
    }
  }

  private void leave(BatchedRun run) {
    lock.lock();
    try {
      runs.remove(run);
      busy.remove(run);
      run.texts.forEach(this::free);
      arrange();
      wakeOne();
    } finally {
      lock.unlock();
    }
  }

  /** Returns when the run was part of a pass, or its thread is interrupted. */
  private void takePart(BatchedRun run) {
    lock.lock();
    try {
      busy.remove(run);
      run.texts.stream().filter(Text::noteWhetherOver).forEach(this::free);
      run.passed = false;
      ready.add(run);
      arrange();
      while (!run.passed) {
        if (run.inPass) {
          run.turn.awaitUninterruptibly();
          continue;
        }
        wakeOne();
        long wait = timeToWait(run);
        if (wait <= 0) {
          lead();
          continue;
        }
        try {
          long _ = run.turn.awaitNanos(wait);
        } catch (InterruptedException e) {
          Thread.currentThread().interrupt();
          if (!run.inPass && !run.passed) {
            ready.remove(run);
            return;
          }
        }
      }
      run.rethrow();
    } finally {
      lock.unlock();
    }
  }

  /** Nanoseconds until a run may lead a pass, if nothing happens before. */
  private long timeToWait(BatchedRun run) {
    if (passing || !run.hasSlot()) {
      return Long.MAX_VALUE;
    }
    return busy.isEmpty() ? 0 : patience - System.nanoTime();
  }

  /** If nobody is waited for, one of those who are ready has to go on. */
  private void wakeOne() {
    if (!passing && busy.isEmpty()) {
      ready.stream().filter(BatchedRun::hasSlot).findFirst().ifPresent(r -> r.turn.signal());
    }
  }

  private void free(Text text) {
    if (text.slot >= 0) {
      texts[text.slot] = null;
      text.slot = -1;
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
    for (BatchedRun run : runs) {
      if (run.slots() == 0 && run.waiting() != null) {
        int slot = freeSlot();
        if (slot < 0) {
          slot = takenSlot();
        }
        if (slot < 0) {
          break;
        }
        give(slot, run, passes.kv);
      }
    }
    for (int slot = freeSlot(); slot >= 0; slot = freeSlot()) {
      Optional<BatchedRun> next =
          runs.stream()
              .filter(run -> run.waiting() != null && holderOfPrompt(run, passes.kv) != null)
              .min(Comparator.comparingInt(BatchedRun::slots));
      if (next.isEmpty()) {
        return;
      }
      give(slot, next.get(), passes.kv);
    }
  }

  private int freeSlot() {
    for (int slot = 0; slot < texts.length; slot++) {
      if (texts[slot] == null) {
        return slot;
      }
    }
    return -1;
  }

  /** The slot of the shortest text of a run that has several, which loses it; -1 if none has. */
  private int takenSlot() {
    KvCache kv = Objects.requireNonNull(passes).kv;
    Optional<Text> loser =
        Arrays.stream(texts)
            .filter(Objects::nonNull)
            .filter(text -> text.run.slots() > 1)
            .min(Comparator.comparingInt(text -> kv.length(text.slot)));
    if (loser.isEmpty()) {
      return -1;
    }
    int slot = loser.get().slot;
    free(loser.get());
    return slot;
  }

  /** A text of the run with the prompt in its slot, all but the last token. */
  private static @Nullable Text holderOfPrompt(BatchedRun run, KvCache kv) {
    for (Text text : run.texts) {
      if (text.slot >= 0 && kv.length(text.slot) >= run.prompt.length - 1) {
        return text;
      }
    }
    return null;
  }

  /** The text starts from what is known of its prompt: only the last token is read again. */
  private void give(int slot, BatchedRun run, KvCache kv) {
    Text text = Objects.requireNonNull(run.waiting());
    int known = run.prompt.length - 1;
    if (contents[slot] != run || kv.length(slot) < known) {
      Text holder = holderOfPrompt(run, kv);
      if (holder == null) {
        known = 0;
      } else {
        kv.copySequence(model.ops(), holder.slot, slot);
      }
    }
    kv.truncate(slot, known);
    contents[slot] = run;
    texts[slot] = text;
    text.slot = slot;
    run.turn.signal();
  }

  /** Carries out a pass for all who are ready. */
  private void lead() {
    Passes all = Objects.requireNonNull(passes);
    List<Piece> pieces = pieces(all.kv);
    Set<BatchedRun> part = new LinkedHashSet<>();
    pieces.forEach(piece -> part.add(piece.text.run));
    part.forEach(run -> run.inPass = true);
    ready.removeAll(part);
    busy.clear();
    passing = true;
    lock.unlock();
    long start = System.nanoTime();
    Throwable failure = null;
    try {
      all.run(pieces);
    } catch (Throwable e) { // each of those who took part throws it
      failure = e;
    } finally {
      lock.lock();
    }
    passing = false;
    busy.addAll(part);
    long end = System.nanoTime();
    patience = end + Math.max(LEAST_PATIENCE, end - start);
    for (BatchedRun run : part) {
      run.inPass = false;
      run.passed = true;
      run.failure = failure;
      run.turn.signal();
    }
    arrange();
    ready.forEach(run -> run.turn.signal()); // they wait for the others from now on
  }

  private List<Piece> pieces(KvCache kv) {
    List<Piece> pieces = new ArrayList<>();
    int room = PROMPT_ROWS;
    for (BatchedRun run : runs) {
      if (!ready.contains(run)) {
        continue;
      }
      for (Text text : run.texts) {
        if (text.slot >= 0) {
          int from = kv.length(text.slot);
          int rows = text.sample.length() - from;
          if (rows > 1) {
            rows = Math.min(rows, room);
            room -= rows;
          }
          if (rows > 0) {
            pieces.add(new Piece(text, from, rows));
          }
        }
      }
    }
    return pieces;
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

  /** Rows of a pass: tokens {@code from .. from + rows - 1} of a text. */
  private record Piece(Text text, int from, int rows) {}

  /** The cache, and what passes work in. */
  private static final class Passes implements AutoCloseable {
    final KvCache kv;
    private final Transformer model;
    private final TensorArena arena;
    private final Activations activations;
    private final Tensor x; // rows of the residual stream whose logits are wanted
    private final Tensor h;
    private final Tensor logits;

    Passes(Transformer model, int slots) {
      this.model = model;
      Gpt2Config config = model.config();
      int rows = slots + PROMPT_ROWS;
      model
          .ops()
          .requireRoom(
              new SessionSize(config, config.nPositions(), slots, rows, true, Optional.empty(), 0));
      arena = model.ops().arena();
      try {
        kv =
            new KvCache(
                arena,
                config.nLayer(),
                config.nHead(),
                config.headDim(),
                slots,
                config.nPositions());
        activations = Activations.allocate(arena, config, rows);
        x = arena.allocate(rows, config.nEmbd());
        h = arena.activations(rows, config.nEmbd());
        logits = arena.allocate(rows, config.vocabSize());
      } catch (Throwable e) {
        arena.close();
        throw e;
      }
    }

    /** Reads the pieces and brings their runs the logits that they want. */
    void run(List<Piece> pieces) {
      Batch batch = batch(pieces);
      Activations a = activations.rows(batch.rows());
      model.forward(batch, kv, a, Mask.CAUSAL, AttentionTap.NONE);
      Ops ops = model.ops();
      List<float[]> wanted = new ArrayList<>();
      int r = 0;
      for (Piece piece : pieces) {
        for (int i = 0; i < piece.rows; i++, r++) {
          float[] row = piece.text.run.logitsAfter(piece.text, piece.from + i);
          if (row != null) {
            ops.copy(a.x().rows(r, 1), x.rows(wanted.size(), 1));
            wanted.add(row);
          }
        }
      }
      int n = wanted.size();
      if (n > 0) {
        model.logits(x.rows(0, n), h.rows(0, n), logits.rows(0, n));
      }
      for (int i = 0; i < n; i++) {
        ops.read(logits, i, wanted.get(i), logits.cols());
      }
    }

    private static Batch batch(List<Piece> pieces) {
      Batch batch =
          Batch.step(
              pieces.stream()
                  .flatMapToInt(p -> IntStream.generate(() -> p.text.slot).limit(p.rows))
                  .toArray());
      int r = 0;
      for (Piece piece : pieces) {
        int position = piece.from;
        for (int id : piece.text.sample.ids(position, position + piece.rows)) {
          batch.set(r++, id, position++);
        }
      }
      return batch;
    }

    @Override
    public void close() {
      arena.close();
    }
  }
}
