package dev.loupe.cli.corpus;

import dev.loupe.cli.options.Home;
import dev.loupe.cli.options.ModelOptions;
import dev.loupe.corpus.ModelPlace;
import dev.loupe.weights.io.CheckpointException;
import java.nio.file.Path;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Option;

/** Which model, where the machines of a cluster find it. */
final class CorpusModelOptions {
  @Option(
      names = {"-m", "--model"},
      paramLabel = "DIR|FILE|NAME|URI",
      description = {
        "GPT-2 folder, weights file, name of a pulled model (default: the Shakespeare demo).",
        "A LoRA adapter is merged first, by loupe weights convert.",
        "On a cluster the same path on every machine, or hdfs://... or s3a://..."
      })
  @Nullable String model;

  @Option(names = "--ship", description = "Send the model along to the machines of a cluster.")
  boolean ship;

  ModelPlace place() throws CheckpointException {
    boolean address = model != null && model.matches("[a-z][a-z0-9+.-]+://.*");
    if (address && ship) {
      throw new IllegalArgumentException("--ship is for a model on this machine");
    }
    String source = address ? String.valueOf(model) : local().toAbsolutePath().toString();
    return new ModelPlace(source, ship, Home.gpt2Tokenizer());
  }

  private Path local() throws CheckpointException {
    ModelOptions options = new ModelOptions();
    options.model = model == null ? null : Path.of(model);
    return options.source();
  }
}
