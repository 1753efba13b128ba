package dev.loupe.cli.run;

import dev.loupe.Loupe;
import dev.loupe.cli.options.LoupeCommand;
import dev.loupe.cli.options.ModelOptions;
import dev.loupe.cli.options.ReportOptions;
import dev.loupe.cli.options.TextInput;
import dev.loupe.cli.terminal.ProgressBar;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.export.trace.GridReport;
import dev.loupe.export.trace.RowReport;
import dev.loupe.export.trace.TraceReport;
import dev.loupe.generate.Prompt;
import dev.loupe.interpret.RowNumbers;
import dev.loupe.interpret.trace.Ablation;
import dev.loupe.interpret.trace.Part;
import dev.loupe.interpret.trace.PatchGrid;
import dev.loupe.interpret.trace.Trace;
import dev.loupe.interpret.trace.TraceEffort;
import dev.loupe.interpret.trace.TraceListener;
import dev.loupe.interpret.trace.TraceRequest;
import java.io.IOException;
import java.util.Locale;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.Callable;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.ArgGroup;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParentCommand;

/** {@code loupe trace}: from a token to the heads that wrote it, by interventions. */
@Command(
    name = "trace",
    description = {
      "Show which heads make the model predict a token, and what they read from each other.",
      "Every effect is measured: a part is replaced, and the text read again."
    },
    parameterListHeading = "%n",
    abbreviateSynopsis = true,
    sortOptions = false,
    footerHeading = "%nExamples:%n",
    footer = {
      "  loupe trace \"The priest is ready, sir. The priest is\" --against runner-up",
      "  loupe trace --file poem.txt --at 40 --target 307 --json",
      "  loupe trace --ids 1,2,3,1,2 --patch 1,2,4,1,2 --grid heads",
      "  loupe trace \"To be or not to be\" --row 4.0 --csv"
    })
public final class TraceCommand implements Callable<Integer> {
  @ParentCommand LoupeCommand parent;
  @Mixin TextInput input;

  @Mixin TokenOptions token;

  @Option(
      names = "--against",
      paramLabel = "ID",
      description =
          "Explain how far the logit lies above that of this token, or of runner-up (default: the"
              + " log-probability).")
  @Nullable String against;

  @Option(
      names = "--patch",
      paramLabel = "TEXT",
      description =
          "A second text of as many tokens: what is replaced is as it is there; with --ids, ids.")
  @Nullable String patch;

  @Option(
      names = "--ablate-to",
      paramLabel = "A",
      description =
          "What replaces the rest of a circuit: zero, mean, or patch (default: mean; patch with"
              + " --patch).")
  @Nullable Ablation ablateTo;

  @Option(names = "--mlps", description = "Replace MLPs too, which otherwise run as they are.")
  boolean mlps;

  @Option(
      names = "--keep",
      paramLabel = "S",
      description = "The share of the effect that a circuit keeps (default: 0.6).")
  double keep = TraceRequest.KEEP;

  @Option(
      names = "--most",
      paramLabel = "N",
      description = "Most parts of a small circuit (default: 12, or half of all).")
  int most = TraceRequest.MOST;

  @Option(
      names = "--row",
      paramLabel = "L.H",
      description =
          "Instead: all numbers behind the row of token N in head H of layer L, and what it adds to"
              + " the logit.")
  @Nullable String row;

  @Option(
      names = "--grid",
      paramLabel = "G",
      description =
          "Instead: with --patch, the effect of each activation at each position: of layers, of"
              + " heads, or of the queries, keys and values of head L.H.")
  @Nullable String grid;

  @Option(names = "--csv", description = "Print --row or --grid as comma-separated values.")
  boolean csv;

  @Option(names = "--html", description = "Print the trace as a page for a browser: > trace.html.")
  boolean html;

  @Option(names = "--svg", description = "Print the drawing of the circuit as SVG.")
  boolean svg;

  @Mixin ReportOptions report;

  @ArgGroup(validate = false, order = 1, heading = "%nModel:%n")
  ModelOptions model = new ModelOptions();

  @Override
  public Integer call() throws IOException {
    Terminal terminal = parent.terminal();
    token.check();
    requireOneKind();
    TraceRequest request = request(input.prompt(terminal));
    ProgressBar bar = new ProgressBar(terminal, !report.quiet.set, "tracing");
    String printed;
    try (Loupe loupe =
        model.open(terminal, report.quiet.set, report.json, request.prompt().needsTokenizer())) {
      TraceRequest watched =
          request.listener(
              (phase, done, total) -> {
                bar.update(done, total);
                return true;
              });
      printed =
          row != null
              ? row(loupe, watched, row, terminal.outColumns())
              : grid != null
                  ? grid(loupe, watched, grid, terminal.outColumns())
                  : trace(loupe, watched, terminal);
    } finally {
      bar.clear();
    }
    terminal.print(printed);
    return 0;
  }

  private void requireOneKind() {
    if (row != null && (grid != null || patch != null || against != null)) {
      throw new IllegalArgumentException(
          "--row shows one row of attention: leave out --grid, --patch and --against");
    }
    if (grid != null && patch == null) {
      throw new IllegalArgumentException("--grid takes a second text: add --patch");
    }
    if (csv && row == null && grid == null) {
      throw new IllegalArgumentException("--csv is for --row and --grid: add one of them");
    }
    if ((html || svg) && (row != null || grid != null)) {
      throw new IllegalArgumentException(
          "--html and --svg are for traces: leave out --row and --grid");
    }
    if (Stream.of(csv, report.json, html, svg).filter(asked -> asked).count() > 1) {
      throw new IllegalArgumentException("give one of --json, --csv, --html and --svg");
    }
  }

  private String trace(Loupe loupe, TraceRequest request, Terminal terminal) {
    if (!report.quiet.set) {
      TraceEffort effort = loupe.traceEffort(request);
      terminal.say(String.format(Locale.ROOT, "[at most %,d readings of the text]", effort.cuts()));
    }
    Trace trace = loupe.trace(request);
    return html
        ? TraceReport.html(trace)
        : svg
            ? TraceReport.svg(trace)
            : report.json
                ? TraceReport.json(trace) + "\n"
                : TraceReport.text(trace, terminal.outColumns());
  }

  private String row(Loupe loupe, TraceRequest request, String name, int columns) {
    int[] head = InterventionOptions.head("--row", name);
    RowNumbers numbers =
        loupe.row(request.prompt(), head[0], head[1], request.at(), request.target());
    return csv
        ? RowReport.csv(numbers)
        : report.json ? RowReport.json(numbers) + "\n" : RowReport.text(numbers, columns);
  }

  private String grid(Loupe loupe, TraceRequest request, String of, int columns) {
    PatchGrid cells =
        switch (of) {
          case "layers" -> loupe.patch(request, PatchGrid.Kind.LAYERS);
          case "heads" -> loupe.patch(request, PatchGrid.Kind.HEADS);
          default -> {
            int[] head = InterventionOptions.head("--grid layers, heads, or", of);
            yield loupe.patch(request, new Part(head[0], head[1]));
          }
        };
    return csv
        ? GridReport.csv(cells)
        : report.json ? GridReport.json(cells) + "\n" : GridReport.text(cells, columns);
  }

  private TraceRequest request(Prompt prompt) {
    Optional<Prompt> second =
        Optional.ofNullable(patch).map(text -> input.another("--patch", text));
    if (ablateTo == Ablation.PATCH && second.isEmpty()) {
      throw new IllegalArgumentException("--ablate-to patch takes a second text: add --patch");
    }
    Ablation usual = second.isPresent() ? Ablation.PATCH : Ablation.MEAN;
    return new TraceRequest(
        prompt,
        token.at(),
        token.target(),
        against(),
        second,
        ablateTo == null ? usual : ablateTo,
        mlps,
        keep,
        most,
        TraceListener.NONE);
  }

  private OptionalInt against() {
    if (against == null) {
      return OptionalInt.empty();
    }
    if (against.equals("runner-up")) {
      return OptionalInt.of(TraceRequest.RUNNER_UP);
    }
    try {
      return OptionalInt.of(Integer.parseUnsignedInt(against.strip()));
    } catch (NumberFormatException e) {
      throw new IllegalArgumentException(
          "--against %s: the id of a token, or runner-up".formatted(against));
    }
  }
}
