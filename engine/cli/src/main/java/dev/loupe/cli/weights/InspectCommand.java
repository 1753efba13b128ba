package dev.loupe.cli.weights;

import com.google.gson.JsonObject;
import dev.loupe.cli.options.Home;
import dev.loupe.cli.options.ModelOptions;
import dev.loupe.cli.options.QuietOption;
import dev.loupe.cli.terminal.ProgressBar;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.Inspection;
import java.io.IOException;
import java.nio.file.Path;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.ParentCommand;

/** {@code loupe weights inspect}: what is in a checkpoint and what running it takes. */
@Command(
    name = "inspect",
    description = "Show configuration, tensors, memory needs and the SHA-256.",
    parameterListHeading = "%n",
    footerHeading = "%nExamples:%n",
    footer = {"  loupe weights inspect", "  loupe weights inspect gpt2 --all"})
final class InspectCommand implements Callable<Integer> {
  @ParentCommand WeightsCommand parent;

  @Parameters(
      arity = "0..1",
      paramLabel = "DIR|FILE|NAME",
      description = "The model (default: the bundled demo).")
  @Nullable Path model;

  @Option(
      names = "--adapter",
      paramLabel = "DIR|NAME",
      description = "LoRA adapter to merge with the model (default: none).")
  @Nullable Path adapter;

  @Option(names = "--all", description = "Every tensor on a line of its own.")
  boolean all;

  @Option(names = "--json", description = "As one JSON object, every tensor in it.")
  boolean json;

  @Mixin QuietOption quiet;

  @Override
  public Integer call() throws IOException {
    Terminal terminal = parent.terminal();
    ModelOptions options = new ModelOptions();
    options.model = model;
    options.adapter = adapter;
    try (Checkpoint checkpoint = options.find().open(null)) {
      Inspection inspection = inspect(checkpoint, new ProgressBar(terminal, !quiet.set, "hashing"));
      TokenizerReport tokenizer = TokenizerReport.of(checkpoint, Home.gpt2Tokenizer());
      if (json) {
        JsonObject whole = inspection.json();
        whole.add("tokenizer", tokenizer.json());
        terminal.print(whole + "\n");
      } else {
        terminal.print(inspection.text(all) + tokenizer.text());
      }
      if (!quiet.set) {
        WeightsCommand.sayNotes(checkpoint, terminal);
        tokenizer.notes().forEach(note -> terminal.say("[%s]".formatted(note)));
      }
    }
    return 0;
  }

  private static Inspection inspect(Checkpoint checkpoint, ProgressBar bar) {
    try {
      return Inspection.of(checkpoint, bar::update);
    } finally {
      bar.clear();
    }
  }
}
