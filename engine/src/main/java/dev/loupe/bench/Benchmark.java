package dev.loupe.bench;

import dev.loupe.Generation;
import dev.loupe.Generation.Finish;
import dev.loupe.Loupe;
import dev.loupe.Precision;
import dev.loupe.Request;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.sampling.Sampling;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.Gpt2Config;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CancellationException;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * Whole-model speed through {@link Loupe#run}, as a user has it: from token ids to token ids, with
 * the sampler, the text and, where asked for, the attention maps. Prompts are random tokens.
 *
 * <p>Two runs warm up. What is timed is what {@link Generation.Timing} says: reading the prompt up
 * to its last token's logits, or all steps after that. The first token that is written comes from
 * the prompt's logits, so n steps write n + 1 tokens. A run with maps reads its last token too;
 * that is one step more, whose logits nobody asks for.
 */
public final class Benchmark {
  public static final int WARM_UP_RUNS = 2;

  /** Prompts that are tried for one after which the model does not end its text early. */
  private static final int PROMPTS = 20;

  /** What is timed. */
  public enum Phase {
    /** Reading a prompt in one pass. */
    PREFILL,
    /** Writing one token after the other. */
    DECODE
  }

  /** Which attention maps are kept meanwhile. */
  public enum Maps {
    NONE,
    /** Those of layer 0, all heads. */
    ONE,
    /** Those of all layers and heads. */
    ALL
  }

  /**
   * What to run.
   *
   * @param promptTokens length of the prompt
   * @param steps tokens to write after the first one; 0 for PREFILL
   * @param runs how often, after those that warm up
   */
  public record Settings(Phase phase, int promptTokens, int steps, int runs, Maps maps) {
    public Settings {
      if (promptTokens < 1) {
        throw new IllegalArgumentException(
            "%d prompt tokens: not 1 or more".formatted(promptTokens));
      }
      if (phase == Phase.DECODE && steps < 1) {
        throw new IllegalArgumentException("%d tokens to write: not 1 or more".formatted(steps));
      }
      if (runs < 1) {
        throw new IllegalArgumentException("%d runs: not 1 or more".formatted(runs));
      }
    }

    /** Tokens that a request writes. */
    int written() {
      return phase == Phase.PREFILL ? 0 : steps + 1;
    }

    /** Steps that are timed. */
    int passes() {
      return phase == Phase.PREFILL ? 1 : steps + (maps == Maps.NONE ? 0 : 1);
    }
  }

  /**
   * What was measured.
   *
   * @param prompt the token ids that were read
   * @param milliseconds of one pass (a prompt, or the average step) in each run; fewer than asked
   *     for, perhaps none, if the listener ended it
   */
  public record Result(List<Integer> prompt, List<Double> milliseconds) {
    public Result {
      prompt = List.copyOf(prompt);
      milliseconds = List.copyOf(milliseconds);
    }
  }

  /** Hears from the runs. */
  public interface Listener {
    /**
     * Called as a run goes on, and at its end.
     *
     * @param run from 0, those that warm up first
     * @param part how much of this run is done, 0 to 1
     * @return false to end here and keep what has been measured
     */
    boolean progress(int run, double part);

    /** Called before the first run that is measured, and after each. */
    default void pause() {}
  }

  private final Loupe loupe;
  private final Settings settings;
  private final Listener listener;

  private Benchmark(Loupe loupe, Settings settings, Listener listener) {
    this.loupe = loupe;
    this.settings = settings;
    this.listener = listener;
  }

  /**
   * Runs the model.
   *
   * @throws IllegalArgumentException if it does not fit the model's context, or the model ends its
   *     text early after every prompt that was tried
   */
  public static Result run(Loupe loupe, Settings settings, Listener listener) {
    int context = loupe.info().config().nPositions();
    int total = settings.promptTokens + settings.written();
    if (total > context) {
      throw new IllegalArgumentException(
          "%d prompt tokens%s do not fit the model's context of %d"
              .formatted(
                  settings.promptTokens,
                  settings.phase == Phase.PREFILL
                      ? ""
                      : " and %d to write".formatted(settings.written()),
                  context));
    }
    return new Benchmark(loupe, settings, listener).run();
  }

  private Result run() {
    List<Double> times = new ArrayList<>();
    int seed = 0;
    int[] prompt = prompt(seed);
    for (int run = 0; run < WARM_UP_RUNS + settings.runs; run++) {
      Generation done = one(prompt, run);
      while (run == 0 && done != null && done.finish() == Finish.EOS) {
        if (++seed == PROMPTS) {
          throw new IllegalArgumentException(
              "the model ends its text before %d tokens after each of %d random prompts: give a smaller -n"
                  .formatted(settings.written(), PROMPTS));
        }
        prompt = prompt(seed);
        done = one(prompt, run);
      }
      if (done == null) {
        break;
      }
      if (run >= WARM_UP_RUNS) {
        times.add(milliseconds(done));
      }
      if (run >= WARM_UP_RUNS - 1) {
        listener.pause();
      }
    }
    return new Result(Arrays.stream(prompt).boxed().toList(), times);
  }

  private double milliseconds(Generation run) {
    return settings.phase == Phase.PREFILL
        ? run.timing().prefillMs()
        : run.timing().decodeMs() / settings.passes();
  }

  /** One run; null if it was ended. */
  private @Nullable Generation one(int[] prompt, int number) {
    Request request =
        Request.ids(prompt)
            .tokens(settings.written())
            .sampling(Sampling.greedy())
            .listener(new Relay(number));
    if (settings.maps != Maps.NONE) {
      AttentionSelection all = AttentionSelection.all();
      request.attention(settings.maps == Maps.ALL ? all : all.layers(0));
    }
    try {
      Generation run = loupe.run(request).getFirst();
      return run.finish() == Finish.INTERRUPTED || !listener.progress(number, 1) ? null : run;
    } catch (CancellationException e) {
      return null;
    }
  }

  /** Random tokens, but none that stands for the end of a text. */
  private int[] prompt(int seed) {
    Tokenizer tokenizer = loupe.tokenizer();
    int[] ids =
        IntStream.range(0, tokenizer.size())
            .filter(id -> tokenizer.contains(id) && !tokenizer.isSpecial(id))
            .toArray();
    return new Random(seed).ints(settings.promptTokens, 0, ids.length).map(i -> ids[i]).toArray();
  }

  /** What this has to move and compute for one pass. */
  public static Work work(Loupe loupe, Settings settings, Precision precision) {
    Gpt2Config config = loupe.info().config();
    Work.Storage storage = Work.Storage.of(loupe.info(), precision);
    return settings.phase == Phase.PREFILL
        ? Work.pass(config, storage, 0, settings.promptTokens)
        : Work.step(config, storage, settings.promptTokens, settings.passes());
  }

  /** Passes on how far a run has come. */
  private final class Relay implements Request.Listener {
    private final int run;
    private int pieces;

    Relay(int run) {
      this.run = run;
    }

    @Override
    public boolean reading(int layersDone, int layers) {
      return settings.phase == Phase.DECODE || listener.progress(run, (double) layersDone / layers);
    }

    @Override
    public boolean text(int sample, String piece) {
      pieces++; // about one a token
      return listener.progress(run, Math.min(1, (double) pieces / settings.written()));
    }
  }
}
