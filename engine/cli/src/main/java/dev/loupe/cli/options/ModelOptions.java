package dev.loupe.cli.options;

import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.cli.terminal.CompileProgress;
import dev.loupe.cli.terminal.OpeningBar;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.ops.BackendException;
import dev.loupe.ops.Gemm;
import dev.loupe.ops.Precision;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.io.CheckpointException;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import java.util.function.UnaryOperator;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Option;

/** Which model, and what to run it on. */
public final class ModelOptions extends ProcessorOptions {
  @Option(
      names = {"-m", "--model"},
      order = 1,
      paramLabel = "DIR|FILE|NAME",
      description =
          "GPT-2 folder, weights file, or name of a pulled model (default: the Shakespeare demo).")
  public @Nullable Path model;

  @Option(
      names = "--adapter",
      order = 2,
      paramLabel = "DIR|NAME",
      description = "LoRA adapter to merge with the model (default: none).")
  public @Nullable Path adapter;

  @Option(
      names = "--dtype",
      order = 12,
      paramLabel = "T",
      description = "Weights as f32, f16, bf16 or int8 (default: f32).")
  public Precision precision = Precision.F32;

  @Option(
      names = "--activation",
      order = 13,
      paramLabel = "A",
      description = "gelu_new (tanh), gelu (erf), ... (default: what the model says).")
  public @Nullable Activation activation;

  @Option(
      names = "--gemm",
      order = 14,
      paramLabel = "G",
      description = "What multiplies prompts on a GPU: auto, own or cublas (default: auto).")
  Gemm gemm = Gemm.AUTO;

  @Option(
      names = "--kernels",
      order = 15,
      paramLabel = "F=V",
      split = ",",
      description =
          "Use variant V of a family F of GPU kernels, for shapes that it takes (default: the fastest that is right on this card; see loupe doctor).")
  Map<String, String> kernels = Map.of();

  /** Where the model lies, for what reads it without an adapter. */
  public Path source() throws CheckpointException {
    NamedModels.Found found = find();
    if (found.adapter().isPresent()) {
      throw new CheckpointException(
          "%s is a LoRA adapter: write it as a model first, by loupe weights convert"
              .formatted(found.adapter().get()));
    }
    return found.source();
  }

  /** Where the model lies, and its adapter. */
  public NamedModels.Found find() throws CheckpointException {
    if (model != null) {
      if (model.toString().isEmpty()) {
        throw new IllegalArgumentException("the model's name is empty: give a folder or a file");
      }
      return NamedModels.find(model, adapter);
    }
    Path demo =
        Home.demoModel()
            .orElseThrow(
                () ->
                    new CheckpointException(
                        "the bundled demo model is not where Loupe lies: name a model with -m DIR"));
    return NamedModels.find(demo, adapter);
  }

  /**
   * Opens the model; shows a bar where that takes a while.
   *
   * @param hash whether to compute the hash of the weights, which reads all of them
   * @param text whether the model must have a tokenizer, see {@link Options#textRequired}
   */
  public Loupe open(Terminal terminal, boolean quiet, boolean hash, boolean text)
      throws CheckpointException {
    return open(terminal, quiet, hash, text, options -> options);
  }

  /**
   * Likewise.
   *
   * @param more what the command knows besides: slots, expected tokens
   */
  public Loupe open(
      Terminal terminal, boolean quiet, boolean hash, boolean text, UnaryOperator<Options> more)
      throws CheckpointException {
    if (!quiet) {
      CompileProgress.show(terminal);
    }
    Loupe loupe;
    try (OpeningBar bar = new OpeningBar(terminal, !quiet)) {
      NamedModels.Found found = find();
      Options options = more.apply(options(found, hash, text, bar));
      loupe = Loupe.open(found.source(), options, bar::loaded);
    } catch (BackendException e) {
      throw new BackendException("%s (--backend cpu)".formatted(e.getMessage()));
    }
    if (!quiet) {
      loupe.notes().forEach(note -> terminal.say("[%s]".formatted(note)));
      if (loupe.tokenizer().front().length > 0) {
        terminal.say("[--no-bos puts nothing in front of a text]");
      }
    }
    return loupe;
  }

  private Options options(NamedModels.Found found, boolean hash, boolean text, OpeningBar bar) {
    return new Options(
        backend,
        device,
        precision,
        gemm,
        threads,
        vectorBits,
        hash,
        Optional.ofNullable(activation),
        found.adapter(),
        Home.gpt2Tokenizer(),
        text,
        0,
        0,
        kernels,
        bar);
  }
}
