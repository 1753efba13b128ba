package dev.loupe.cli.run;

import dev.loupe.Loupe;
import dev.loupe.cli.options.LoupeCommand;
import dev.loupe.cli.options.ModelOptions;
import dev.loupe.cli.options.ReportOptions;
import dev.loupe.cli.options.TextInput;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.export.ComparisonReport;
import dev.loupe.generate.Prompt;
import dev.loupe.generate.ReadRequest;
import dev.loupe.interpret.Comparison;
import dev.loupe.ops.Mask;
import java.io.IOException;
import java.util.concurrent.Callable;
import picocli.CommandLine.ArgGroup;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParentCommand;

/** {@code loupe compare}: what heads do for a text, shown by changing them. */
@Command(
    name = "compare",
    description = {
      "Read a text with heads or the mask changed, and show what changes.",
      "The model reads it as it is, too: each token's probability and the attention are compared."
    },
    parameterListHeading = "%n",
    abbreviateSynopsis = true,
    sortOptions = false,
    footerHeading = "%nExamples:%n",
    footer = {
      "  loupe compare \"To be or not to be\" --ablate 4.0",
      "  loupe compare --file poem.txt --ablate 2.1,2.2 --ablate-to mean",
      "  loupe compare \"To be or not to be\" --scale 5.0=2 --json",
      "  loupe compare \"To be or not to be\" --mask none"
    })
public final class CompareCommand implements Callable<Integer> {
  @ParentCommand LoupeCommand parent;
  @Mixin TextInput input;

  @ArgGroup(validate = false, order = 1, heading = "%nWhat is changed:%n")
  InterventionOptions changes = new InterventionOptions();

  public enum Masking {
    CAUSAL,
    NONE
  }

  @Option(
      names = "--mask",
      paramLabel = "M",
      description =
          "causal, or none: each token reads those after it too, as no GPT-2 was trained to"
              + " (default: causal).")
  Masking mask = Masking.CAUSAL;

  @Option(
      names = "--top",
      paramLabel = "K",
      description = "Show the K tokens that change most (default: 20).")
  int top = 20;

  @Mixin ReportOptions report;

  @ArgGroup(validate = false, order = 2, heading = "%nModel:%n")
  ModelOptions model = new ModelOptions();

  @Override
  public Integer call() throws IOException {
    Terminal terminal = parent.terminal();
    if (top < 0) {
      throw new IllegalArgumentException("--top %d: not 0 or more".formatted(top));
    }
    String words = words();
    if (words.isEmpty()) {
      throw new IllegalArgumentException(
          "nothing is changed: give --ablate, --scale, --n-head or --mask none (--ablate 4.0, for"
              + " example)");
    }
    Prompt prompt = input.prompt(terminal);
    ReadRequest request =
        ReadRequest.of(prompt)
            .interventions(changes.interventions())
            .mask(mask == Masking.NONE ? Mask.FULL : Mask.CAUSAL);
    Comparison comparison;
    try (Loupe loupe =
        model.open(terminal, report.quiet.set, report.json, prompt.needsTokenizer())) {
      comparison = loupe.compare(request);
    }
    int columns = terminal.outColumns();
    terminal.print(
        report.json
            ? ComparisonReport.json(comparison, words) + "\n"
            : ComparisonReport.text(comparison, words, top, columns));
    return 0;
  }

  /** What is changed, in words; empty if nothing is. */
  private String words() {
    String heads = changes.words();
    if (mask == Masking.CAUSAL) {
      return heads;
    }
    return "every token reading all others" + (heads.isEmpty() ? "" : ", " + heads);
  }
}
