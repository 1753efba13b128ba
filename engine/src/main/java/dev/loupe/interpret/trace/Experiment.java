package dev.loupe.interpret.trace;

import dev.loupe.generate.OpenModel;
import dev.loupe.generate.Prompt;
import dev.loupe.sampling.TokenDistribution;
import dev.loupe.text.Count;
import dev.loupe.text.Labels;
import dev.loupe.text.Tokenizer;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import org.jspecify.annotations.Nullable;

/**
 * A quantity of a text, and readings of that text that change it. For one thread; the caller closes
 * it.
 */
final class Experiment implements AutoCloseable {
  /** What is asked, checked against a model. */
  static final class Question {
    private final int[] all;
    private final int[] ids;
    private final int target;
    private final OptionalInt against;
    private final Optional<int[]> patch;

    /**
     * @param all tokens of the text
     * @param ids those up to the token after which the model speaks
     * @param target negative for the likeliest
     * @param against of a difference of logits
     * @param patch of a second text, as many as {@code ids}
     */
    private Question(int[] all, int[] ids, int target, OptionalInt against, Optional<int[]> patch) {
      this.all = all;
      this.ids = ids;
      this.target = target;
      this.against = against;
      this.patch = patch;
    }

    /** The text; not to be changed. */
    int[] all() {
      return all;
    }

    /** What is read of it; not to be changed. */
    int[] ids() {
      return ids;
    }

    /** The second text. */
    Optional<int[]> patch() {
      return patch;
    }

    /**
     * @throws IllegalArgumentException if the text has no such position, is longer than the
     *     context, or the vocabulary has no such token; if the second text is shorter
     */
    static Question of(
        OpenModel model,
        Prompt prompt,
        int position,
        int target,
        OptionalInt against,
        Optional<Prompt> patch) {
      int[] all = model.tokens(prompt);
      int at = model.position(all, position);
      Tokenizer tokenizer = model.tokenizer();
      if (target >= 0) {
        tokenizer.requireToken(target);
      }
      if (against.isPresent() && against.getAsInt() != TraceRequest.RUNNER_UP) {
        tokenizer.requireToken(against.getAsInt());
      }
      boolean follows = target < 0 && at + 1 < all.length;
      return new Question(
          all,
          Arrays.copyOf(all, at + 1),
          follows ? all[at + 1] : target,
          against,
          patch.map(text -> patch(model, text, all, at + 1)));
    }

    private static int[] patch(OpenModel model, Prompt prompt, int[] all, int tokens) {
      int[] patch = model.tokens(prompt);
      if (patch.length != tokens && patch.length != all.length) {
        throw new IllegalArgumentException(
            "the second text has %s and the first %d: patching takes as many"
                .formatted(Count.of(patch.length, "token"), all.length));
      }
      int[] read = Arrays.copyOf(patch, tokens);
      if (Arrays.equals(read, Arrays.copyOf(all, tokens))) {
        throw new IllegalArgumentException(
            "both texts are the same up to token %d: patching would change nothing"
                .formatted(tokens - 1));
      }
      return read;
    }
  }

  private final CutRunner runner;
  private final BitSet sayable;
  private final Quantity quantity;
  private final double value;
  private final @Nullable Recording other;
  private long cuts;

  Experiment(OpenModel open, Question question, CutRunner.Work work) {
    sayable = open.tokenizer().ids();
    runner = new CutRunner(open.transformer(), question.ids, work);
    try {
      quantity = quantity(open.tokenizer(), question, runner.clean().logits);
      value = quantity.of(runner.clean().logits, sayable);
      other = question.patch.isPresent() ? runner.record(question.patch.get()) : null;
    } catch (Throwable e) {
      runner.close();
      throw e;
    }
  }

  private Quantity quantity(Tokenizer tokenizer, Question question, float[] logits) {
    TokenDistribution said = new TokenDistribution(logits, sayable);
    int target = question.target < 0 ? said.top(1).getFirst().id() : question.target;
    Optional<Quantity.Other> against = Optional.empty();
    if (question.against.isPresent()) {
      int id = question.against.getAsInt();
      if (id == TraceRequest.RUNNER_UP) {
        id =
            said.top(2).stream()
                .mapToInt(TokenDistribution.Entry::id)
                .filter(each -> each != target)
                .findFirst()
                .orElseThrow(() -> new IllegalArgumentException("there is no second token"));
      }
      against = Optional.of(new Quantity.Other(id, Labels.label(tokenizer, id)));
    }
    return new Quantity(target, Labels.label(tokenizer, target), against);
  }

  CutRunner runner() {
    return runner;
  }

  /** Which quantity. */
  Quantity quantity() {
    return quantity;
  }

  /** Of the quantity, in the text as it is. */
  double value() {
    return value;
  }

  /** Tokens that are read. */
  int tokens() {
    return runner.clean().tokens;
  }

  /** The second text, null if there is none. */
  @Nullable Recording other() {
    return other;
  }

  /** The quantity after the second text. */
  double otherValue(Recording second) {
    return quantity.of(second.logits, sayable);
  }

  /** Readings so far. */
  long cuts() {
    return cuts;
  }

  /** The quantity with each of some changes. */
  double[] values(List<Cut> all) {
    double[] values = new double[all.size()];
    runner.run(all, (i, row) -> values[i] = quantity.of(row, sayable));
    cuts += all.size();
    return values;
  }

  /** What each change makes of the quantity, less the quantity. */
  double[] effects(List<Cut> all) {
    return Arrays.stream(values(all)).map(each -> each - value).toArray();
  }

  /** Likewise, of the replacement of each of some parts. */
  double[] effects(List<Part> parts, Replacements by) {
    return effects(parts.stream().map(part -> Cut.of(part, by.of(part), tokens())).toList());
  }

  @Override
  public void close() {
    runner.close();
  }
}
