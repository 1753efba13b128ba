package dev.loupe.cli.run;

import dev.loupe.Loupe;
import dev.loupe.cli.options.LoupeCommand;
import dev.loupe.cli.options.ModelOptions;
import dev.loupe.cli.options.ReportOptions;
import dev.loupe.cli.options.TextInput;
import dev.loupe.cli.terminal.ProgressBar;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.export.LensReport;
import dev.loupe.generate.Prompt;
import dev.loupe.interpret.Lens;
import java.io.IOException;
import java.util.concurrent.Callable;
import picocli.CommandLine.ArgGroup;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParentCommand;

/** {@code loupe lens}: why the model says what it says after one token of a text. */
@Command(
    name = "lens",
    description = {
      "Show how the model's next token comes about, layer by layer.",
      "Shows what it would say after each layer, and what each part adds to a token's logit."
    },
    parameterListHeading = "%n",
    abbreviateSynopsis = true,
    sortOptions = false,
    footerHeading = "%nExamples:%n",
    footer = {
      "  loupe lens \"To be or not to\"",
      "  loupe lens \"To be or not to be\" --at 3 --top 3",
      "  loupe lens --file poem.txt --at 40 --target 307 --json"
    })
public final class LensCommand implements Callable<Integer> {
  @ParentCommand LoupeCommand parent;
  @Mixin TextInput input;

  @Mixin TokenOptions token;

  @Option(
      names = "--top",
      paramLabel = "K",
      description = "Name the K likeliest tokens after each layer (default: 5).")
  int top = 5;

  @Mixin ReportOptions report;

  @ArgGroup(validate = false, order = 1, heading = "%nModel:%n")
  ModelOptions model = new ModelOptions();

  @Override
  public Integer call() throws IOException {
    Terminal terminal = parent.terminal();
    token.check();
    Prompt prompt = input.prompt(terminal);
    ProgressBar bar = new ProgressBar(terminal, !report.quiet.set, "reading");
    Lens lens;
    try (Loupe loupe =
        model.open(
            terminal,
            report.quiet.set,
            report.json,
            prompt.needsTokenizer(),
            options -> options.expectedTokens(prompt.expectedTokens()))) {
      lens =
          loupe.lens(
              prompt,
              token.at(),
              token.target(),
              top,
              (layersDone, layers) -> {
                bar.update(layersDone, layers);
                return true;
              });
    } finally {
      bar.clear();
    }
    int columns = terminal.outColumns();
    terminal.print(report.json ? LensReport.json(lens) + "\n" : LensReport.text(lens, columns));
    return 0;
  }
}
