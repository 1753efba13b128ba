package dev.loupe.cli.run;

import dev.loupe.Loupe;
import dev.loupe.cli.options.LoupeCommand;
import dev.loupe.cli.options.ModelOptions;
import dev.loupe.cli.options.QuietOption;
import dev.loupe.cli.options.TextInput;
import dev.loupe.cli.terminal.Interrupt;
import dev.loupe.cli.terminal.ProgressBar;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.export.HeadSurveyExport;
import dev.loupe.export.HeadTable;
import dev.loupe.generate.Prompt;
import dev.loupe.interpret.HeadSurvey;
import java.io.IOException;
import java.util.concurrent.Callable;
import picocli.CommandLine.ArgGroup;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParentCommand;

/** {@code loupe heads}: a table of what each head does. */
@Command(
    name = "heads",
    description = {
      "Show what each head does: on repeated random tokens, and on a text of any length.",
      "A head has a role where it gives more than 0.4 of its attention to it."
    },
    parameterListHeading = "%n",
    abbreviateSynopsis = true,
    sortOptions = false,
    footerHeading = "%nExamples:%n",
    footer = {
      "  loupe heads",
      "  loupe heads --file play.txt --sort first",
      "  loupe heads -m gpt2 --file play.txt --csv > heads.csv"
    })
public final class HeadsCommand implements Callable<Integer> {
  @ParentCommand LoupeCommand parent;
  @Mixin TextInput input;

  @Option(
      names = "--sort",
      paramLabel = "COLUMN",
      description =
          "By head, induction, prev, dupl, first, self, entropy, dist or norm, the largest"
              + " first (default: induction).")
  HeadTable.Column sort = HeadTable.Column.INDUCTION;

  @Option(names = "--json", description = "Print one JSON object, with edges.")
  boolean json;

  @Option(names = "--csv", description = "Print comma-separated values, a line a head.")
  boolean csv;

  @Mixin QuietOption quiet;

  @ArgGroup(validate = false, order = 1, heading = "%nModel:%n")
  ModelOptions model = new ModelOptions();

  @Override
  public Integer call() throws IOException {
    Terminal terminal = parent.terminal();
    if (json && csv) {
      throw new IllegalArgumentException("give one of --json and --csv, not both");
    }
    Prompt prompt = input.prompt(terminal);
    HeadSurvey survey;
    try (Loupe loupe = model.open(terminal, quiet.set, json, prompt.needsTokenizer());
        Interrupt interrupt = new Interrupt(terminal)) {
      survey = survey(loupe, prompt, terminal, interrupt);
    }
    int columns = terminal.outColumns();
    terminal.print(
        json
            ? HeadSurveyExport.json(survey, sort)
            : csv ? HeadSurveyExport.csv(survey, sort) : HeadTable.render(survey, sort, columns));
    if (survey.windowsRead() < survey.windows()) {
      if (!quiet.set) {
        terminal.say(
            "[interrupted: %d of %d windows of the text were read]"
                .formatted(survey.windowsRead(), survey.windows()));
      }
      return Interrupt.exitCode();
    }
    return 0;
  }

  /** A Ctrl-C while the text is read ends it with what was read. */
  private HeadSurvey survey(Loupe loupe, Prompt prompt, Terminal terminal, Interrupt interrupt) {
    ProgressBar bar = new ProgressBar(terminal, !quiet.set, "reading");
    int before = HeadSurvey.SEQUENCES * loupe.info().config().nLayer();
    try {
      return loupe.heads(
          prompt,
          (done, all) -> {
            bar.update(done, all);
            if (done >= before) {
              interrupt.onlyAsk(); // from here on there is something to keep
            }
            return !interrupt.asked();
          });
    } finally {
      bar.clear();
    }
  }
}
