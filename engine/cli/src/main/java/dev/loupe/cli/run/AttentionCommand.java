package dev.loupe.cli.run;

import dev.loupe.Loupe;
import dev.loupe.cli.options.LoupeCommand;
import dev.loupe.cli.options.ModelOptions;
import dev.loupe.cli.options.TextInput;
import dev.loupe.cli.terminal.Interrupt;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.export.AttentionTable;
import dev.loupe.export.RunJson;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import java.io.IOException;
import java.io.StringWriter;
import java.util.List;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.ArgGroup;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParentCommand;

/** {@code loupe attention}: one pass over a text, maps out, no generation. */
@Command(
    name = "attention",
    description = {
      "Read a text and show what each token attended to.",
      "Without --attention a table of it goes to standard output."
    },
    parameterListHeading = "%n",
    abbreviateSynopsis = true,
    sortOptions = false,
    footerHeading = "%nExamples:%n",
    footer = {
      "  loupe attention \"To be or not to be\"",
      "  loupe attention \"To be\" --layers 0-2 --heads 1 --top 5",
      "  loupe attention --file poem.txt --attention poem.npz"
    })
public final class AttentionCommand implements Callable<Integer> {
  private static final int SHOWN = 4; // heads

  @ParentCommand LoupeCommand parent;
  @Mixin TextInput input;

  @Option(
      names = "--top",
      paramLabel = "K",
      description =
          "Print the K tokens that each token read most, averaged over the chosen layers and"
              + " heads. Without it, and where no file is written, the 4 heads that differ most"
              + " from the average are shown.")
  @Nullable Integer top;

  @Mixin OutputOptions output;

  @ArgGroup(validate = false, order = 1, heading = "%nAttention maps:%n")
  AttentionOutput attention = new AttentionOutput();

  @ArgGroup(validate = false, order = 2, heading = "%nLogits and residual stream:%n")
  ReadoutOutput readouts = new ReadoutOutput();

  @ArgGroup(validate = false, order = 3, heading = "%nModel:%n")
  ModelOptions model = new ModelOptions();

  @ArgGroup(validate = false, order = 4, heading = "%nHeads that are changed:%n")
  InterventionOptions changes = new InterventionOptions();

  @Override
  public Integer call() throws IOException {
    Terminal terminal = parent.terminal();
    if (top != null && top < 1) {
      throw new IllegalArgumentException("--top %d: not 1 or more".formatted(top));
    }
    if (top != null && output.json) {
      throw new IllegalArgumentException("give one of --top and --json, not both");
    }
    output.check(attention);
    boolean table = !output.json && (top != null || !(attention.writes() || readouts.writes()));
    attention.check(table || output.json);
    readouts.check(attention.everyFile());
    boolean maps = table || output.json || !attention.files.isEmpty();
    GenerateRequest request =
        GenerateRequest.of(input.prompt(terminal))
            .tokens(0)
            .interventions(changes.interventions())
            .logprobs(output.logprobs);
    if (maps || attention.writes()) {
      request.attention(attention.selection(maps));
    }
    try (AttentionOutput files = attention;
        ReadoutOutput passes = readouts) {
      files.open(1);
      passes.open(1);
      List<Generation> runs;
      try (Loupe loupe =
              model.open(
                  terminal,
                  output.quiet.set,
                  output.json,
                  request.needsText(),
                  options -> options.expectedTokens(request.expectedTokens()));
          Interrupt interrupt = new Interrupt(terminal)) {
        runs = new RunPrinter(terminal, output, 1, true, interrupt).run(loupe, request);
        passes.write(loupe, runs, changes.interventions());
      }
      files.write(runs);
      Generation run = runs.getFirst();
      if (output.json) {
        StringWriter json = new StringWriter();
        RunJson.write(run, attention.firstFile(0), json);
        terminal.print(json.toString());
      } else if (table) {
        int columns = terminal.outColumns();
        terminal.print(
            top == null
                ? AttentionTable.renderHeads(run, SHOWN, columns)
                : AttentionTable.render(run, top, columns));
      }
      if (!output.quiet.set) {
        attention.announce(terminal, runs);
        readouts.announce(terminal);
      }
      return 0;
    }
  }
}
