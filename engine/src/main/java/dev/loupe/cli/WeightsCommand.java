package dev.loupe.cli;

import dev.loupe.text.Tokenizer;
import dev.loupe.weights.AtomicFile;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.GgmlType;
import dev.loupe.weights.Gpt2Gguf;
import dev.loupe.weights.Inspection;
import dev.loupe.weights.Progress;
import dev.loupe.weights.RandomCheckpoint;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CancellationException;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.ParentCommand;

/** {@code loupe weights}: what is in a checkpoint, other formats, and checkpoints for tests. */
@Command(
    name = "weights",
    description = "Inspect, convert, fetch and make GPT-2 checkpoints.",
    synopsisSubcommandLabel = "COMMAND ...",
    optionListHeading = "%n",
    commandListHeading = "%nCommands:%n",
    subcommands = {
      WeightsCommand.Inspect.class,
      WeightsCommand.Convert.class,
      PullCommand.class,
      WeightsCommand.MakeRandom.class
    })
final class WeightsCommand {
  @ParentCommand Main main;

  @Command(
      name = "inspect",
      description = "Show configuration, tensors and memory needs.",
      parameterListHeading = "%n",
      footerHeading = "%nExamples:%n",
      footer = {"  loupe weights inspect", "  loupe weights inspect gpt2 --all"})
  static final class Inspect implements Callable<Integer> {
    @ParentCommand WeightsCommand parent;

    @Parameters(
        arity = "0..1",
        paramLabel = "DIR|FILE",
        description = "The model (default: the bundled demo).")
    @Nullable Path model;

    @Option(names = "--all", description = "Every tensor on a line of its own.")
    boolean all;

    @Option(names = "--json", description = "As one JSON object, every tensor in it.")
    boolean json;

    @Override
    public Integer call() throws IOException {
      ModelOptions options = new ModelOptions();
      options.model = model;
      try (Checkpoint checkpoint = Checkpoint.open(options.source())) {
        Inspection inspection = Inspection.of(checkpoint);
        parent.main.terminal().print(json ? inspection.json() + "\n" : inspection.text(all));
      }
      return 0;
    }
  }

  @Command(
      name = "convert",
      description = "Write a model in another format, its tokenizer included.",
      parameterListHeading = "%n",
      footerHeading = "%nExample:%n",
      footer = {"  loupe weights convert gpt2 gpt2.gguf --dtype q8_0"})
  static final class Convert implements Callable<Integer> {
    @ParentCommand WeightsCommand parent;

    @Parameters(index = "0", paramLabel = "IN", description = "The model: a folder or its weights.")
    Path in;

    @Parameters(index = "1", paramLabel = "OUT", description = "The file to write; must be new.")
    Path out;

    @Option(
        names = "--format",
        paramLabel = "F",
        description = "gguf, which llama.cpp reads (default: gguf).")
    String format = "gguf";

    @Option(
        names = "--dtype",
        paramLabel = "T",
        description = "Matrices as f32, f16 or q8_0 (default: f16); the rest is f32.")
    String dtype = "f16";

    @Option(
        names = {"-q", "--quiet"},
        description = "No progress, no closing line.")
    boolean quiet;

    @Override
    public Integer call() throws IOException {
      Terminal terminal = parent.main.terminal();
      if (!format.equals("gguf")) {
        throw new IllegalArgumentException("no format \"%s\"; there is gguf".formatted(format));
      }
      GgmlType type = GgmlType.named(dtype);
      if (Files.exists(out)) {
        throw new IOException(out + " exists already; give a new name or delete it");
      }
      Path model = Models.find(in);
      try (Checkpoint checkpoint = Checkpoint.open(model)) {
        Path folder = Files.isDirectory(model) ? model : model.toAbsolutePath().getParent();
        write(checkpoint, vocabulary(folder == null ? model : folder), type, terminal);
      }
      if (!quiet) {
        terminal.say("[wrote %s: %d bytes]".formatted(out, Files.size(out)));
      }
      return 0;
    }

    private void write(
        Checkpoint checkpoint, Gpt2Gguf.Vocabulary vocabulary, GgmlType type, Terminal terminal)
        throws IOException {
      writing(
          new ProgressBar(terminal, !quiet, "writing " + out.getFileName()),
          terminal,
          out,
          progress -> Gpt2Gguf.write(checkpoint, vocabulary, type, out, progress));
    }

    private static Gpt2Gguf.Vocabulary vocabulary(Path folder) throws IOException {
      List<Gpt2Gguf.Token> tokens = new ArrayList<>();
      try (Tokenizer tokenizer = Tokenizer.open(folder)) {
        for (int id = 0; id < tokenizer.size(); id++) {
          tokens.add(
              tokenizer.contains(id)
                  ? new Gpt2Gguf.Token(tokenizer.raw(id), kind(tokenizer, id))
                  : Gpt2Gguf.Token.unused(id));
        }
      }
      return new Gpt2Gguf.Vocabulary(tokens, Tokenizer.merges(folder));
    }

    private static Gpt2Gguf.TokenKind kind(Tokenizer tokenizer, int id) {
      return tokenizer.isSpecial(id)
          ? Gpt2Gguf.TokenKind.CONTROL
          : tokenizer.isAdded(id) ? Gpt2Gguf.TokenKind.USER_DEFINED : Gpt2Gguf.TokenKind.NORMAL;
    }
  }

  @Command(
      name = "make-random",
      description = "Write a GPT-2 model with random weights, for tests and benchmarks.",
      parameterListHeading = "%n",
      footerHeading = "%nExamples:%n",
      footer = {
        "  loupe weights make-random tiny-model --size tiny",
        "  loupe generate -m tiny-model \"Once\""
      })
  static final class MakeRandom implements Callable<Integer> {
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

    @Option(
        names = {"-q", "--quiet"},
        description = "No progress, no closing line.")
    boolean quiet;

    @Override
    public Integer call() throws IOException {
      Terminal terminal = parent.main.terminal();
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
      if (!quiet) {
        terminal.say(
            "[wrote %s: random weights of the size of %s, seed %d]"
                .formatted(folder, chosen.label(), seed));
      }
      return 0;
    }

    private void write(RandomCheckpoint.Size chosen, Terminal terminal) throws IOException {
      writing(
          new ProgressBar(terminal, !quiet, "writing " + chosen.label()),
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

  /** Long work that reports how far it has come. */
  private interface Work {
    void run(Progress progress) throws IOException;
  }

  /** Writes {@code out} with a bar; an interrupt ends it, and what was begun is removed. */
  private static void writing(ProgressBar bar, Terminal terminal, Path out, Work work)
      throws IOException {
    try (Interrupt interrupt = new Interrupt(terminal)) {
      interrupt.onlyAsk(); // what is begun has to be removed
      work.run(
          (done, total) -> {
            bar.update(done, total);
            if (interrupt.asked()) {
              throw new CancellationException("interrupted; %s was not made".formatted(out));
            }
          });
    } finally {
      bar.clear();
    }
  }
}
