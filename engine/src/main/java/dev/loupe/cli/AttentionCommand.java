package dev.loupe.cli;

import dev.loupe.Generation;
import dev.loupe.Loupe;
import dev.loupe.Request;
import dev.loupe.export.AttentionTable;
import dev.loupe.export.RunJson;
import java.io.IOException;
import java.io.StringWriter;
import java.util.List;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParentCommand;

/** {@code loupe attention}: one pass over a text, maps out, no generation. */
@Command(
    name = "attention",
    description = "Read a text and show what each token attended to.",
    mixinStandardHelpOptions = true)
final class AttentionCommand implements Callable<Integer> {
  private static final int DEFAULT_TOP = 3;

  @ParentCommand Main main;
  @Mixin ModelOptions model;
  @Mixin TextInput input;
  @Mixin AttentionOutput attention;
  @Mixin OutputOptions output;

  @Option(
      names = "--top",
      paramLabel = "K",
      description =
          "Print the K tokens that each token read most, averaged over the chosen layers and"
              + " heads (default: 3 where no file is written).")
  @Nullable Integer top;

  @Option(
      names = "--logprobs",
      paramLabel = "K",
      description = "With --json: the K likeliest tokens at each place (default: 0).",
      defaultValue = "0")
  int logprobs;

  @Override
  public Integer call() throws IOException {
    Terminal terminal = main.terminal();
    if (top != null && top < 1) {
      throw new IllegalArgumentException("--top %d: not 1 or more".formatted(top));
    }
    Request request =
        input.request(terminal).tokens(0).logprobs(logprobs).attention(attention.selection());
    try (AttentionOutput files = attention) {
      files.open(1);
      List<Generation> runs;
      try (Loupe loupe = model.open(output.json);
          Interrupt interrupt = new Interrupt()) {
        runs = new RunPrinter(terminal, output, 1, interrupt).run(loupe, request);
      }
      files.write(runs);
      Generation run = runs.getFirst();
      if (output.json) {
        StringWriter json = new StringWriter();
        RunJson.write(run, attention.firstFile(), json);
        terminal.print(json.toString());
      } else if (top != null || attention.files.isEmpty()) {
        int columns = terminal.outIsTerminal() ? terminal.columns() : 80;
        terminal.print(AttentionTable.render(run, top == null ? DEFAULT_TOP : top, columns));
      }
      if (!output.quiet) {
        attention.announce(terminal, run);
      }
      return 0;
    }
  }
}
