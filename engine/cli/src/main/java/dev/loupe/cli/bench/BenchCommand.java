package dev.loupe.cli.bench;

import dev.loupe.Loupe;
import dev.loupe.bench.BenchReport;
import dev.loupe.bench.Benchmark;
import dev.loupe.bench.Benchmark.Maps;
import dev.loupe.bench.Benchmark.Phase;
import dev.loupe.bench.Benchmark.Settings;
import dev.loupe.bench.Ceilings;
import dev.loupe.bench.Machine;
import dev.loupe.cli.options.LoupeCommand;
import dev.loupe.cli.options.ModelOptions;
import dev.loupe.cli.options.ReportOptions;
import dev.loupe.cli.terminal.Interrupt;
import dev.loupe.cli.terminal.ProgressBar;
import dev.loupe.cli.terminal.Terminal;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.ArgGroup;
import picocli.CommandLine.Command;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParentCommand;
import picocli.CommandLine.TypeConversionException;

/** {@code loupe bench}: how fast a whole model, or one operation of it, runs on this machine. */
@Command(
    name = "bench",
    description =
        "Measure a whole model on this machine, or compare the ways to compute one operation.",
    synopsisSubcommandLabel = "COMMAND ...",
    optionListHeading = "%n",
    commandListHeading = "%nCommands:%n",
    subcommands = {BenchCommand.Decode.class, BenchCommand.Prefill.class})
public final class BenchCommand {
  @ParentCommand LoupeCommand parent;

  /** The streams of this run. */
  Terminal terminal() {
    return parent.terminal();
  }

  /** What both measurements ask for. */
  static final class Options {
    @Option(
        names = "--runs",
        paramLabel = "N",
        description = "Runs of each that are measured, after two to warm up (default: 7).")
    int runs = 7;

    @Option(
        names = "--attention",
        paramLabel = "A",
        split = ",",
        converter = MapsConverter.class,
        description = {
          "Maps that are kept: none, one (layer 0) or all (default: none).",
          "Several, none,one,all, are measured in turns and compared."
        })
    List<Maps> maps = List.of(Maps.NONE);

    @Mixin ReportOptions report;
  }

  /** Names of maps in small letters. */
  static final class MapsConverter implements ITypeConverter<Maps> {
    @Override
    public Maps convert(String text) {
      try {
        return Maps.valueOf(text.strip().toUpperCase(Locale.ROOT));
      } catch (IllegalArgumentException e) {
        throw new TypeConversionException("'%s' is not none, one or all".formatted(text));
      }
    }
  }

  @Command(
      name = "decode",
      description = {
        "Measure writing, one token after the other.",
        "Bytes and operations are counted by formula, and held against the best that as"
            + " many threads read, or multiply and add, in the same process."
      },
      optionListHeading = "%n",
      abbreviateSynopsis = true,
      sortOptions = false,
      footerHeading = "%nExample:%n",
      footer = "  loupe bench decode -m gpt2 --threads 4 --json")
  static final class Decode implements Callable<Integer> {
    @ParentCommand BenchCommand parent;

    @Option(
        names = "--prompt-tokens",
        paramLabel = "N",
        description = "Tokens to read first (default: 64, or a quarter of the context).")
    @Nullable Integer promptTokens;

    @Option(
        names = "-n",
        paramLabel = "N",
        description = "Tokens to write (default: 128, or what the context has room for).")
    @Nullable Integer tokens;

    @Option(
        names = "--texts",
        paramLabel = "N",
        description = "Texts to write at once, as a server does (default: ${DEFAULT-VALUE}).")
    int texts = 1;

    @Mixin Options options;

    @ArgGroup(validate = false, order = 1, heading = "%nModel:%n")
    ModelOptions model = new ModelOptions();

    @Override
    public Integer call() throws IOException {
      return measure(
          parent.terminal(),
          model,
          options,
          context -> {
            int prompt = promptTokens == null ? Math.min(64, (context + 3) / 4) : promptTokens;
            int steps = tokens == null ? Math.clamp(context - prompt - 1, 1, 128) : tokens;
            return new Settings(Phase.DECODE, prompt, steps, options.runs, options.maps, texts);
          });
    }
  }

  @Command(
      name = "prefill",
      description = {
        "Measure reading a prompt in one pass.",
        "Bytes and operations are counted by formula, and held against the best that as"
            + " many threads read, or multiply and add, in the same process."
      },
      optionListHeading = "%n",
      abbreviateSynopsis = true,
      sortOptions = false,
      footerHeading = "%nExample:%n",
      footer = "  loupe bench prefill -m gpt2 --prompt-tokens 1024 --attention none,one,all")
  static final class Prefill implements Callable<Integer> {
    @ParentCommand BenchCommand parent;

    @Option(
        names = "--prompt-tokens",
        paramLabel = "N",
        description = "Tokens to read (default: 512, or what the context has room for).")
    @Nullable Integer promptTokens;

    @Mixin Options options;

    @ArgGroup(validate = false, order = 1, heading = "%nModel:%n")
    ModelOptions model = new ModelOptions();

    @Override
    public Integer call() throws IOException {
      return measure(
          parent.terminal(),
          model,
          options,
          context -> {
            int prompt = promptTokens == null ? Math.min(512, context) : promptTokens;
            return new Settings(Phase.PREFILL, prompt, 0, options.runs, options.maps);
          });
    }
  }

  /** What to run in a model's context. */
  private interface Plan {
    Settings of(int context);
  }

  private static int measure(Terminal terminal, ModelOptions model, Options options, Plan plan)
      throws IOException {
    Machine machine = Machine.here();
    try (Loupe loupe = model.open(terminal, options.report.quiet.set, false, false);
        Interrupt interrupt = new Interrupt(terminal)) {
      Settings settings = plan.of(loupe.info().config().nPositions());
      int threads = model.threads == 0 ? machine.processors() : model.threads;
      boolean cpu = loupe.info().backend().equals("cpu");
      Moments moments = new Moments(threads, cpu && Ceilings.warmUp());
      Benchmark.Result result =
          run(terminal, loupe, settings, options.report.quiet.set, interrupt, moments);
      if (!result.runs().isEmpty()) {
        BenchReport measured =
            BenchReport.of(
                settings,
                loupe.info(),
                model.precision,
                threads,
                result,
                moments.ofRuns(result.runs().size()),
                machine);
        terminal.print(options.report.json ? measured.json() + "\n" : measured.text());
      }
      return interrupt.asked() ? Interrupt.exitCode() : 0;
    }
  }

  /** The machine's best, measured anew between the runs. */
  private static final class Moments {
    private final int threads;
    private final List<Ceilings> all = new ArrayList<>();
    private final boolean there;

    Moments(int threads, boolean there) {
      this.threads = threads;
      this.there = there;
    }

    void measure() {
      if (there) {
        all.add(Ceilings.measure(threads));
      }
    }

    List<Ceilings> ofRuns(int runs) {
      List<Ceilings> each = new ArrayList<>();
      for (int i = 0; i < runs && there; i++) {
        each.add(all.get(i).orBetter(all.get(i + 1)));
      }
      return each;
    }
  }

  private static Benchmark.Result run(
      Terminal terminal,
      Loupe loupe,
      Settings settings,
      boolean quiet,
      Interrupt interrupt,
      Moments moments) {
    int parts = 100;
    ProgressBar progress = new ProgressBar(terminal, !quiet, "measuring");
    try {
      return Benchmark.run(
          loupe,
          settings,
          new Benchmark.Listener() {
            @Override
            public boolean progress(int run, double part) {
              progress.update((long) (parts * (run + part)), (long) parts * settings.allRuns());
              if (run == settings.warmUpRuns() && part == 1) {
                interrupt.onlyAsk(); // from here on there is something to keep
              }
              return !interrupt.asked();
            }

            @Override
            public void pause() {
              moments.measure();
            }
          });
    } finally {
      progress.clear();
    }
  }
}
