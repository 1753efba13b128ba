package dev.loupe.bench;

import dev.loupe.Loupe;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Generation.Finish;
import dev.loupe.sampling.Sampling;
import dev.loupe.text.Count;
import dev.loupe.text.Tokenizer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.OptionalLong;
import java.util.Random;
import java.util.concurrent.CancellationException;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * Whole-model speed through {@link Loupe#run}, as a user has it: from token ids to token ids, with
 * the sampler, the text and, where asked for, the attention maps. Prompts are random tokens.
 *
 * <p>Two rounds warm up. Where several kinds of maps are compared, each round runs every kind once,
 * each time another one first, so that a machine's better and worse moments fall on all alike. What
 * is timed is what {@link Generation.Timing} says: reading the prompt up to its last token's
 * logits, or all steps after that. The first token that is written comes from the prompt's logits,
 * so n steps write n + 1 tokens. A run with maps reads its last token too; that is one step more,
 * whose logits nobody asks for.
 */
public final class Benchmark {
  public static final int WARM_UP_RUNS = 2; // of each kind of maps

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
   * @param runs how often each, after those that warm up
   * @param maps which are compared; comes in the order of {@link Maps}, each once
   * @param texts that are written at once, as a server does; 1 for PREFILL
   */
  public record Settings(
      Phase phase, int promptTokens, int steps, int runs, List<Maps> maps, int texts) {
    /** Of one text. */
    public Settings(Phase phase, int promptTokens, int steps, int runs, List<Maps> maps) {
      this(phase, promptTokens, steps, runs, maps, 1);
    }

    public Settings {
      maps = maps.stream().distinct().sorted().toList();
      if (maps.isEmpty()) {
        throw new IllegalArgumentException("no maps are named: none, one or all");
      }
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
      if (texts < 1 || (texts > 1 && phase == Phase.PREFILL)) {
        throw new IllegalArgumentException(
            "%d texts at once: not %s"
                .formatted(texts, phase == Phase.PREFILL ? "1" : "1 or more"));
      }
    }

    /** Tokens that a request writes. */
    int written() {
      return phase == Phase.PREFILL ? 0 : steps + 1;
    }

    /** Steps that are timed. */
    int passes(Maps kept) {
      return phase == Phase.PREFILL ? 1 : steps + (kept == Maps.NONE ? 0 : 1);
    }

    /** Runs in all, those that warm up too. */
    public int allRuns() {
      return (WARM_UP_RUNS + runs) * maps.size();
    }

    /** Those of them that warm up. */
    public int warmUpRuns() {
      return WARM_UP_RUNS * maps.size();
    }
  }

  /**
   * One run that was measured.
   *
   * @param round in which every kind of maps had its turn, from 0
   * @param milliseconds of one pass: a prompt, or the average step of all texts
   */
  public record Run(Maps maps, int round, double milliseconds) {}

  /**
   * What was measured.
   *
   * @param prompt the token ids that were read
   * @param runs in the order of time; fewer than asked for, perhaps none, if the listener ended it
   * @param memory while it warmed up
   * @param card what else is said of a GPU
   */
  public record Result(List<Integer> prompt, List<Run> runs, Memory memory, Card card) {
    public Result {
      prompt = List.copyOf(prompt);
      runs = List.copyOf(runs);
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
  private Memory memory = Memory.NONE;

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
    List<Run> runs = new ArrayList<>();
    int kinds = settings.maps.size();
    int seed = 0;
    int[] prompt = prompt(seed);
    OptionalLong launches = OptionalLong.empty(); // of a step of the first kind
    for (int i = 0; i < settings.allRuns(); i++) {
      int round = i / kinds;
      Maps maps = settings.maps.get((round + i) % kinds); // nobody is always the first
      Generation done = one(prompt, maps, i);
      while (i == 0 && done != null && done.finish() == Finish.EOS) {
        if (++seed == PROMPTS) {
          throw new IllegalArgumentException(
              "the model ends its text before %s after each of %d random prompts: give a smaller -n"
                  .formatted(Count.of(settings.written(), "token"), PROMPTS));
        }
        prompt = prompt(seed);
        done = one(prompt, maps, i);
      }
      if (done == null) {
        break;
      }
      if (i == 0 && settings.phase == Phase.DECODE) {
        launches = loupe.launchesOfStep();
      }
      if (i >= settings.warmUpRuns()) {
        runs.add(new Run(maps, round - WARM_UP_RUNS, milliseconds(done, maps)));
      }
      if (i >= settings.warmUpRuns() - 1) {
        listener.pause();
      }
    }
    return new Result(Arrays.stream(prompt).boxed().toList(), runs, memory, card(runs, launches));
  }

  private Card card(List<Run> runs, OptionalLong launches) {
    return runs.isEmpty() ? Card.NONE : Card.of(loupe, launches);
  }

  private double milliseconds(Generation run, Maps maps) {
    return settings.phase == Phase.PREFILL
        ? run.timing().prefillMs()
        : run.timing().decodeMs() / settings.passes(maps);
  }

  /** One run; null if it was ended. */
  private @Nullable Generation one(int[] prompt, Maps maps, int number) {
    GenerateRequest request =
        GenerateRequest.ids(prompt)
            .tokens(settings.written())
            .sampling(settings.texts == 1 ? Sampling.greedy() : Sampling.seeded(1))
            .samples(settings.texts)
            .ignoreEos(settings.texts > 1)
            .listener(new Relay(number));
    if (maps != Maps.NONE) {
      request.attention(selection(maps));
    }
    try {
      Generation run = loupe.run(request).getFirst();
      return run.finish() == Finish.INTERRUPTED || !progress(number, 1) ? null : run;
    } catch (CancellationException e) {
      return null;
    }
  }

  /**
   * Memory is asked for while runs warm up: later, what measures ceilings would count, and the
   * question would cost time.
   */
  private boolean progress(int run, double part) {
    if (run < settings.warmUpRuns()) {
      memory = memory.orMore(Memory.now(loupe));
    }
    return listener.progress(run, part);
  }

  /** What is kept where maps are; not of NONE. */
  static AttentionSelection selection(Maps maps) {
    AttentionSelection all = AttentionSelection.all();
    return maps == Maps.ALL ? all : all.layers(0);
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

  /** Passes on how far a run has come. */
  private final class Relay implements GenerateRequest.Listener {
    private final int run;
    private int pieces;

    Relay(int run) {
      this.run = run;
    }

    @Override
    public boolean reading(int layersDone, int layers) {
      return settings.phase == Phase.DECODE || progress(run, (double) layersDone / layers);
    }

    @Override
    public boolean text(int sample, String piece) {
      pieces++; // about one a token
      return progress(run, Math.min(1, (double) pieces / settings.written() / settings.texts));
    }
  }
}
