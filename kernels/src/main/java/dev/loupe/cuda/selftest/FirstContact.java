package dev.loupe.cuda.selftest;

import dev.loupe.cuda.CacheFile;
import dev.loupe.cuda.Card;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.GpuException;
import java.io.IOException;
import java.nio.channels.FileLock;
import java.nio.channels.FileLockInterruptionException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ConcurrentHashMap;
import org.jspecify.annotations.Nullable;

/**
 * At the first use of a card, with this driver and these kernels, finds out which variants compute
 * rightly on it, and keeps that for later processes.
 *
 * <p>The trials run in a child process ({@link TrialRun}). A variant that ends it, that never
 * returns, or that leaves the context unusable is condemned, and another child goes on with the
 * next. A failure of the card or its driver condemns nothing: there are no verdicts then, but a
 * {@link GpuException}.
 */
public final class FirstContact {
  /** Hears from first contact while it goes on, on the thread that asked for it. */
  public interface Listener {
    /** Hears nothing. */
    Listener NONE = new Listener() {};

    /**
     * The trials begin, which takes seconds; not called where the verdicts are known.
     *
     * @param sentence for people: what is tested
     */
    default void begins(String sentence) {}

    /** How many of the trials are done. */
    default void tried(int done, int trials) {}

    /** The trials have ended, well or not. */
    default void ends() {}
  }

  /** Trials that fail until the card is thought to be at fault: more than one family has. */
  private static final int MOST_FAILURES = 24;

  /** Likewise trials that hang; each costs the whole limit. */
  private static final int MOST_HANGS = 3;

  /** Until a child is there: Java and the driver start, maybe beside much else. */
  private static final Duration START = Duration.ofMinutes(5);

  /** A driver may compile a kernel for half a minute. */
  private static final Duration SHORTEST_STEP = Duration.ofMinutes(2);

  /** Verdicts of this process, by key of the card; they stay where no file can be kept. */
  private static final Map<String, KernelVerdicts> KNOWN = new ConcurrentHashMap<>();

  private final int device;
  private final Card card;
  private final Listener listener;
  private final Duration shortestStep;
  private final List<Trial> trials;
  private final @Nullable String[] wrong; // by trial; null: not tried yet
  private final List<String> notes = new ArrayList<>();
  private boolean begun;

  FirstContact(int device, Card card, Listener listener, Duration shortestStep) {
    this.device = device;
    this.card = card;
    this.listener = listener;
    this.shortestStep = shortestStep;
    this.trials = Trial.of(card);
    this.wrong = new String[trials.size()];
  }

  /**
   * The verdicts on a card: those that are known, or new ones.
   *
   * @param device number in the driver's order, from 0
   * @throws GpuException if the card can't be used, or fails while it is tested
   * @throws CancellationException if this thread is interrupted, or the trials are ended from
   *     outside
   */
  public static KernelVerdicts of(int device, Listener listener) {
    return of(device, listener, false);
  }

  /** Likewise, but always new ones. */
  public static KernelVerdicts anew(int device, Listener listener) {
    return of(device, listener, true);
  }

  private static synchronized KernelVerdicts of(int device, Listener listener, boolean anew) {
    Card card = Card.find(device);
    @Nullable KernelVerdicts known = KNOWN.get(card.key());
    if (known != null && !anew) {
      return known;
    }
    FirstContact contact = new FirstContact(device, card, listener, SHORTEST_STEP);
    KernelVerdicts verdicts = contact.verdicts(anew);
    KNOWN.put(card.key(), verdicts);
    return verdicts;
  }

  /**
   * Forgets all that is known of a card, since it has computed wrongly: the next use is the first
   * contact again.
   *
   * @return what to tell the user of that, in half a sentence
   */
  public static String distrust(Card card) {
    KNOWN.remove(card.key());
    try {
      CacheFile.forget(card);
      return "the verdicts on the kernels of %s were deleted, so the next start tests them anew"
          .formatted(card.name());
    } catch (IOException e) {
      return "the verdicts on the kernels of %s can't be deleted (%s): have them tested anew"
          .formatted(card.name(), e);
    }
  }

  private KernelVerdicts verdicts(boolean anew) {
    CacheFile file;
    try {
      file = CacheFile.of(card, "verdicts", List.of());
    } catch (IOException e) {
      return tried().withNotes(List.of(unkept(e)));
    }
    Optional<KernelVerdicts> kept = anew ? Optional.empty() : read(file, true);
    if (kept.isPresent()) {
      return kept.get();
    }
    try (FileLock _ = lock(file)) {
      // another process may have written it meanwhile
      kept = anew ? Optional.empty() : read(file, false);
      return kept.isPresent() ? kept.get() : keep(file, tried());
    } catch (IOException e) { // of closing the lock, which nobody needs any more
      return read(file, false).orElseGet(this::tried);
    }
  }

  /** A file system without locks has two processes do the same, which is no harm. */
  private @Nullable FileLock lock(CacheFile file) {
    try {
      return file.lock();
    } catch (FileLockInterruptionException e) {
      throw interrupted();
    } catch (IOException e) {
      return null;
    }
  }

  private Optional<KernelVerdicts> read(CacheFile file, boolean tell) {
    try {
      Optional<List<String>> lines = file.read();
      Optional<KernelVerdicts> kept = lines.flatMap(all -> KernelVerdicts.of(card, all));
      if (lines.isPresent() && kept.isEmpty() && tell) {
        notes.add("the verdicts kept on the kernels are of another build: they were made anew");
      }
      return kept;
    } catch (CacheFile.DamagedException e) {
      if (tell) {
        notes.add(e.getMessage() + ": the verdicts on the kernels were made anew");
      }
      return Optional.empty();
    }
  }

  private KernelVerdicts keep(CacheFile file, KernelVerdicts verdicts) {
    try {
      file.write(verdicts.lines());
      return verdicts;
    } catch (IOException e) {
      return verdicts.withNotes(List.of(unkept(e)));
    }
  }

  private static String unkept(IOException e) {
    return "the verdicts on the kernels can't be kept and hold for this process only (%s): set LOUPE_CACHE to a folder of yours"
        .formatted(e.getMessage());
  }

  private static CancellationException interrupted() {
    Thread.currentThread().interrupt();
    return new CancellationException("interrupted while the kernels were tested");
  }

  /** Does the trials. */
  KernelVerdicts tried() {
    // a card that this process can't use, e.g. since an error ended CUDA in it, is not tried
    Gpu.open(device).close();
    try {
      Optional<Path> launcher = TrialProcess.launcher();
      if (launcher.isEmpty()) {
        inThisProcess("this Java has no launcher");
      } else {
        inChildren(launcher.get());
      }
    } catch (TrialRun.CardFailure e) {
      String why = String.valueOf(e.getMessage());
      throw new GpuException(
          begun ? "%s could not be tested: %s".formatted(card.name(), why) : why, e);
    } catch (InterruptedException e) {
      throw interrupted();
    } finally {
      if (begun) {
        listener.ends();
      }
    }
    List<KernelVerdicts.Verdict> verdicts = new ArrayList<>();
    for (int i = 0; i < wrong.length; i++) {
      Trial trial = trials.get(i);
      String why = wrong[i] == null ? "was not tried" : wrong[i];
      verdicts.add(
          new KernelVerdicts.Verdict(
              trial.variant().family(), trial.variant().name(), trial.element(), why));
    }
    return new KernelVerdicts(card, verdicts, notes);
  }

  /** A card is open to the trials, for the first time or again. */
  private void opened() {
    if (!begun) {
      begun = true;
      listener.begins(
          "first contact with %s: testing %d kernels, once for this card and driver"
              .formatted(card.name(), trials.size()));
    }
  }

  private void found(int i, String why) {
    wrong[i] = why.replace('\t', ' ');
    listener.tried(i + 1, trials.size());
  }

  private void inThisProcess(String why) {
    notes.add("the kernels were tested in this process, since " + why);
    TrialRun.Listener heard =
        new TrialRun.Listener() {
          @Override
          public void opened() {
            FirstContact.this.opened();
          }

          @Override
          public void tries(int i) {}

          @Override
          public void found(int i, String wrong) {
            FirstContact.this.found(i, wrong);
          }
        };
    for (int next = 0; next < trials.size(); ) {
      next = TrialRun.run(device, trials, next, heard);
    }
  }

  private void inChildren(Path launcher) throws InterruptedException {
    int failures = 0;
    int hangs = 0;
    Ending ending = new Ending(0, false, false);
    // after a failure the card has to show that it still opens
    while (ending.next() < trials.size() || ending.failed()) {
      TrialProcess child;
      long start = System.nanoTime();
      try {
        child = TrialProcess.start(launcher, device, card.key(), ending.next());
      } catch (IOException e) {
        inThisProcess("no process could be started: " + e.getMessage());
        return;
      }
      try (child) {
        ending = listen(child, start, ending.next());
      }
      failures += ending.failed() ? 1 : 0;
      hangs += ending.hung() ? 1 : 0;
      if (hangs >= MOST_HANGS || failures >= MOST_FAILURES) {
        int last = ending.next() - 1;
        throw new TrialRun.CardFailure(
            "%d kernels failed, the last one %s (%s)"
                .formatted(failures, trials.get(last), wrong[last]));
      }
    }
  }

  /**
   * How a child came to its end.
   *
   * @param next the trial to go on with
   * @param failed whether the last trial ended it, or left the card's context unusable
   * @param hung whether it had to be ended
   */
  private record Ending(int next, boolean failed, boolean hung) {}

  private Ending listen(TrialProcess child, long start, int first) throws InterruptedException {
    Duration limit = START;
    int trying = -1;
    int done = first;
    while (true) {
      TrialProcess.Message message = child.next(limit);
      switch (message.what()) {
        case "ready" -> {
          // the slower it started, the more a step may take
          Duration took = Duration.ofNanos(System.nanoTime() - start);
          limit = max(shortestStep, took.multipliedBy(10));
          opened();
        }
        case "try" -> trying = inRange(message.number());
        case "found" -> {
          done = inRange(message.number()) + 1;
          found(done - 1, message.text());
          trying = -1;
        }
        case "end" -> {
          return new Ending(done, done < trials.size(), false);
        }
        case "card" -> throw new TrialRun.CardFailure(message.more());
        case "silent", "exit" -> {
          boolean hung = message.what().equals("silent");
          if (trying < 0) {
            throw new TrialRun.CardFailure(
                hung
                    ? "the process that tests it does nothing"
                    : "%s while no kernel ran%s"
                        .formatted(
                            child.end(), message.more().isEmpty() ? "" : ": " + message.more()));
          }
          if (!hung && child.wasAskedToEnd()) {
            throw new CancellationException("the test of the kernels was ended from outside");
          }
          String how =
              hung ? "it did not end within %d s".formatted(limit.toSeconds()) : child.end();
          found(trying, how);
          return new Ending(trying + 1, true, hung);
        }
        default -> {
          // a line that only looks like one of ours
        }
      }
    }
  }

  private static Duration max(Duration a, Duration b) {
    return a.compareTo(b) > 0 ? a : b;
  }

  private int inRange(int trial) {
    if (trial < 0 || trial >= trials.size()) {
      throw new TrialRun.CardFailure("the process that tests it speaks of trial " + trial);
    }
    return trial;
  }
}
