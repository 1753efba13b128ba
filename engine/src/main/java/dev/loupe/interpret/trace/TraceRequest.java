package dev.loupe.interpret.trace;

import dev.loupe.generate.Prompt;
import java.util.Optional;
import java.util.OptionalInt;

/**
 * What is to be traced.
 *
 * @param prompt the text
 * @param at the token after which the model speaks, from 0; negative for the last
 * @param target the token in question; negative for the one that follows in the text, or the
 *     likeliest at its end
 * @param against the token whose logit is subtracted; {@link #RUNNER_UP} for the likeliest other
 *     than the target; empty for the target's log-probability
 * @param patch a second text of as many tokens up to {@code at}, from which outputs are patched
 * @param ablation what takes the place of what is left out of the circuit
 * @param mlps whether MLPs are left out of a circuit too; otherwise they run as they are, on what
 *     the heads leave them
 * @param keep the share of the effect that a circuit keeps, above 0 and below 1
 * @param most most members of a small circuit
 * @param listener hears how far it has come
 */
public record TraceRequest(
    Prompt prompt,
    int at,
    int target,
    OptionalInt against,
    Optional<Prompt> patch,
    Ablation ablation,
    boolean mlps,
    double keep,
    int most,
    TraceListener listener) {
  /** The likeliest token other than the target. */
  public static final int RUNNER_UP = -1;

  /** The share that a circuit keeps unless another is asked for. */
  public static final double KEEP = 0.6;

  /** Most members of a small circuit unless another number is asked for. */
  public static final int MOST = 12;

  /** Most members that can be asked for: the effort grows with their square. */
  public static final int MOST_MEMBERS = 64;

  public TraceRequest {
    if (against.isPresent() && against.getAsInt() < RUNNER_UP) {
      throw new IllegalArgumentException("token %d: not 0 or more".formatted(against.getAsInt()));
    }
    if (ablation == Ablation.PATCH && patch.isEmpty()) {
      throw new IllegalArgumentException("there is no second text to patch from");
    }
    if (!(keep > 0 && keep < 1)) {
      throw new IllegalArgumentException("a share of %s: not between 0 and 1".formatted(keep));
    }
    if (most < 1 || most > MOST_MEMBERS) {
      throw new IllegalArgumentException(
          "a circuit of %d parts: not 1 to %d".formatted(most, MOST_MEMBERS));
    }
  }

  /** The log-probability of what follows the last token, by mean ablation. */
  public static TraceRequest of(Prompt prompt) {
    return new TraceRequest(
        prompt,
        -1,
        -1,
        OptionalInt.empty(),
        Optional.empty(),
        Ablation.MEAN,
        false,
        KEEP,
        MOST,
        TraceListener.NONE);
  }

  /** Another token after which the model speaks. */
  public TraceRequest at(int token) {
    return new TraceRequest(
        prompt, token, target, against, patch, ablation, mlps, keep, most, listener);
  }

  /** Another token in question. */
  public TraceRequest target(int id) {
    return new TraceRequest(prompt, at, id, against, patch, ablation, mlps, keep, most, listener);
  }

  /** The difference of two logits, see {@link #against}. */
  public TraceRequest against(int id) {
    return new TraceRequest(
        prompt, at, target, OptionalInt.of(id), patch, ablation, mlps, keep, most, listener);
  }

  /** A second text: outputs are patched from it, in the circuit too. */
  public TraceRequest patch(Prompt text) {
    return new TraceRequest(
        prompt, at, target, against, Optional.of(text), Ablation.PATCH, mlps, keep, most, listener);
  }

  /** Another replacement of what is left out of the circuit. */
  public TraceRequest ablation(Ablation other) {
    return new TraceRequest(prompt, at, target, against, patch, other, mlps, keep, most, listener);
  }

  /** Whether MLPs are left out of a circuit too. */
  public TraceRequest mlps(boolean left) {
    return new TraceRequest(
        prompt, at, target, against, patch, ablation, left, keep, most, listener);
  }

  /** Another share that a circuit keeps. */
  public TraceRequest keep(double share) {
    return new TraceRequest(
        prompt, at, target, against, patch, ablation, mlps, share, most, listener);
  }

  /** Another number of most members. */
  public TraceRequest most(int members) {
    return new TraceRequest(
        prompt, at, target, against, patch, ablation, mlps, keep, members, listener);
  }

  /** With somebody who hears how far it has come. */
  public TraceRequest listener(TraceListener other) {
    return new TraceRequest(prompt, at, target, against, patch, ablation, mlps, keep, most, other);
  }
}
