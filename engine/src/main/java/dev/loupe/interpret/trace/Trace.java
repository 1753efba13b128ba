package dev.loupe.interpret.trace;

import dev.loupe.generate.OpenModel;
import dev.loupe.generate.Token;
import dev.loupe.model.ModelInfo;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CancellationException;

/**
 * Which parts of a model made it say a token, by interventions alone: the effect of every head and
 * MLP, the smallest set of them that keeps the effect, and what its members read from each other.
 *
 * <p>An effect is the quantity with an intervention less the quantity without. The effect of all
 * parts together is how far the quantity lies above its value with every part replaced, and what a
 * set keeps is a share of that: with every other part replaced, how far the quantity lies above
 * that value.
 *
 * <p>The search: parts are taken in the order in which the quantity falls without them, until they
 * keep the asked share; if all of them do not, others follow in the order of what each adds to
 * them. Then, the weakest first, each that the others can do without is taken out. There is no
 * small circuit if all parts together raise the quantity by less than half a nat, if twice as many
 * parts as a small circuit may have do not keep the share, or if more parts are needed than a small
 * circuit may have, or than half of all.
 *
 * @param model where it came from
 * @param tokens the text up to the position, and the token after it if the text has one
 * @param position of the token after which the model speaks, from 0
 * @param quantity what is explained
 * @param value of the quantity
 * @param ablation what replaces parts in the circuit and on its edges
 * @param mlps whether MLPs are replaced too; otherwise they run as they are
 * @param ablated the quantity with every part replaced so
 * @param effects of all parts, in their order
 * @param circuit the set; empty where there is no small one
 * @param verdict whether there is one, by which rule, in a sentence
 * @param cuts readings that it took
 * @param seconds that it took
 */
public record Trace(
    ModelInfo model,
    List<Token> tokens,
    int position,
    Quantity quantity,
    double value,
    Ablation ablation,
    boolean mlps,
    double ablated,
    List<Effect> effects,
    Optional<Circuit> circuit,
    String verdict,
    long cuts,
    double seconds) {

  /**
   * What a part does.
   *
   * @param zero effect of zero ablation
   * @param mean effect of mean ablation
   * @param patched effect of patching from the second text; NaN without one
   * @param direct effect of its replacement on the path straight to the logits alone
   */
  public record Effect(Part part, double zero, double mean, double patched, double direct) {
    public Effect {
      requireFinite(zero, mean, direct);
    }

    /** The effect of one kind of ablation. */
    public double of(Ablation ablation) {
      return switch (ablation) {
        case ZERO -> zero;
        case MEAN -> mean;
        case PATCH -> patched;
      };
    }
  }

  public Trace {
    tokens = List.copyOf(tokens);
    effects = List.copyOf(effects);
    requireFinite(value, ablated);
    if (position < 0 || position >= tokens.size()) {
      throw new IllegalArgumentException("token %d of %d".formatted(position, tokens.size()));
    }
  }

  static void requireFinite(double... values) {
    for (double value : values) {
      if (!Double.isFinite(value)) {
        throw new IllegalArgumentException("an effect of " + value);
      }
    }
  }

  /**
   * What a trace would take.
   *
   * @throws IllegalArgumentException as {@link #of}
   */
  public static TraceEffort effort(OpenModel model, TraceRequest request) {
    return Tracer.effort(model, request);
  }

  /**
   * Traces a token.
   *
   * @throws IllegalArgumentException if the text has no such position, is longer than the context,
   *     or the vocabulary has no such token; if the second text has another number of tokens
   * @throws CancellationException if the listener ended it
   */
  public static Trace of(OpenModel model, TraceRequest request) {
    return Tracer.trace(model, request);
  }

  /**
   * How faithful a given circuit is: some parts alone, that read each other, and the logits them,
   * by some links and no other.
   *
   * @return the share of the effect that it keeps: 1 of a model as it is, 0 of one where every part
   *     is replaced
   * @throws IllegalArgumentException as {@link #of}
   */
  public static double kept(OpenModel model, TraceRequest request, List<Circuit.Link> links) {
    return Tracer.kept(model, request, links);
  }
}
