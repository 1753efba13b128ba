package dev.loupe.chat;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * One rendering of a template, on the thread that renders: how many steps it took, until when it
 * may go on, and whether the template refused. Code that the library calls finds it by its thread.
 */
final class Rendering {
  private static final int MOST_STEPS = 1 << 20;
  private static final Duration MOST_TIME = Duration.ofSeconds(2);

  /** Ends a rendering; no exception, since the library goes on after those. */
  static final class Ended extends Error {
    private static final long serialVersionUID = 1L;

    Ended(String why) {
      super(why, null, false, false);
    }
  }

  private static final ThreadLocal<@Nullable Rendering> CURRENT = new ThreadLocal<>();

  private final long deadline = System.nanoTime() + MOST_TIME.toNanos();
  private int steps;
  private @Nullable String refusal;

  private Rendering() {}

  /** Begins that of this thread. */
  static Rendering begin() {
    Rendering rendering = new Rendering();
    CURRENT.set(rendering);
    return rendering;
  }

  /** Ends that of this thread. */
  static void end() {
    CURRENT.remove();
  }

  /** Why the template refuses the messages; null if it does not. */
  @Nullable String refusal() {
    return refusal;
  }

  /**
   * Counts a step.
   *
   * @throws Ended if there were too many, they took too long, or the template has refused
   */
  static void step() {
    Rendering rendering = CURRENT.get();
    if (rendering == null) {
      return;
    }
    if (rendering.refusal != null) {
      throw new Ended(rendering.refusal);
    }
    if (++rendering.steps > MOST_STEPS) {
      throw new Ended("it takes more than %d steps".formatted(MOST_STEPS));
    }
    if (System.nanoTime() - rendering.deadline > 0 || Thread.currentThread().isInterrupted()) {
      throw new Ended("it takes longer than %d s".formatted(MOST_TIME.toSeconds()));
    }
  }

  /** {@code raise_exception} of a template. */
  public static String raiseException(Object message) {
    Rendering rendering = CURRENT.get();
    if (rendering != null) {
      rendering.refusal = String.valueOf(message);
    }
    throw new Ended(String.valueOf(message));
  }
}
