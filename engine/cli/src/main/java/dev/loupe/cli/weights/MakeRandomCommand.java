package dev.loupe.cli.weights;

import dev.loupe.cli.options.Home;
import dev.loupe.cli.options.QuietOption;
import dev.loupe.cli.terminal.ProgressBar;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.weights.RandomCheckpoint;
import dev.loupe.weights.io.AtomicFile;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Callable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.ParentCommand;

/** {@code loupe weights make-random}: a model of any GPT-2 size without a download. */
@Command(
    name = "make-random",
    description = "Write a GPT-2 model with random weights, for tests and benchmarks.",
    parameterListHeading = "%n",
    footerHeading = "%nExamples:%n",
    footer = {
      "  loupe weights make-random tiny-model --size tiny",
      "  loupe generate -m tiny-model \"Once\""
    })
final class MakeRandomCommand implements Callable<Integer> {
  private static final List<String> TOKENIZER_FILES =
      List.of("tokenizer.json", "vocab.json", "merges.txt");

  @ParentCommand WeightsCommand parent;

  @Parameters(paramLabel = "DIR", description = "The new model's folder.")
  Path folder;

  @Option(
      names = "--size",
      paramLabel = "SIZE",
      description = "tiny, gpt2, gpt2-medium, gpt2-large or gpt2-xl (default: gpt2, 500 MB).")
  String size = "gpt2";

  @Option(
      names = "--seed",
      paramLabel = "S",
      description = "The same seed gives the same weights (default: 0).")
  long seed;

  @Mixin QuietOption quiet;

  @Override
  public Integer call() throws IOException {
    Terminal terminal = parent.terminal();
    RandomCheckpoint.Size chosen = RandomCheckpoint.Size.named(size);
    write(chosen, terminal);
    // The tiny one has the demo model's vocabulary of 1,024.
    Optional<Path> tokenizer =
        chosen == RandomCheckpoint.Size.TINY ? Home.demoModel() : Home.gpt2Tokenizer();
    if (tokenizer.isPresent()) {
      copyTokenizer(tokenizer.get());
    } else {
      terminal.say(
          "loupe: no tokenizer came with Loupe: copy a tokenizer.json to %s".formatted(folder));
    }
    if (!quiet.set) {
      terminal.say(
          "[wrote %s: random weights of the size of %s, seed %d]"
              .formatted(folder, chosen.label(), seed));
    }
    return 0;
  }

  private void write(RandomCheckpoint.Size chosen, Terminal terminal) throws IOException {
    WeightsCommand.writing(
        new ProgressBar(terminal, !quiet.set, "writing " + chosen.label()),
        terminal,
        folder,
        progress -> RandomCheckpoint.write(chosen, seed, folder, progress));
  }

  /** Unless the folder has one already. */
  private void copyTokenizer(Path from) throws IOException {
    for (String name : TOKENIZER_FILES) {
      if (Files.exists(folder.resolve(name))) {
        return;
      }
    }
    for (String name : TOKENIZER_FILES) {
      if (Files.exists(from.resolve(name))) {
        try (AtomicFile to = AtomicFile.create(folder.resolve(name))) {
          to.stream().write(Files.readAllBytes(from.resolve(name)));
          to.commit();
        }
        return; // tokenizer.json says all that the other two say
      }
    }
  }
}
