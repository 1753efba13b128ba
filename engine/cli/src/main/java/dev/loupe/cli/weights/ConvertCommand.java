package dev.loupe.cli.weights;

import dev.loupe.cli.options.Home;
import dev.loupe.cli.options.NamedModels;
import dev.loupe.cli.options.QuietOption;
import dev.loupe.cli.terminal.ProgressBar;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.text.Tokenizer;
import dev.loupe.text.TokenizerComparison;
import dev.loupe.text.TokenizerFiles;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.Gpt2Gguf;
import dev.loupe.weights.Gpt2Safetensors;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.ggml.GgmlType;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.ParentCommand;

/** {@code loupe weights convert}: a model in another format. */
@Command(
    name = "convert",
    description = "Write a model in another format, its tokenizer included.",
    parameterListHeading = "%n",
    footerHeading = "%nExamples:%n",
    footer = {
      "  loupe weights convert gpt2 gpt2.gguf --dtype int8",
      "  loupe weights convert ckpt.pt my-gpt2"
    })
final class ConvertCommand implements Callable<Integer> {
  @ParentCommand WeightsCommand parent;

  @Parameters(index = "0", paramLabel = "IN", description = "The model: a folder or its weights.")
  Path in;

  @Parameters(
      index = "1",
      paramLabel = "OUT",
      description = "What to write, which must be new: a .gguf file, or a folder.")
  Path out;

  @Option(
      names = "--format",
      paramLabel = "F",
      description =
          "gguf, which llama.cpp reads, or safetensors, with config.json and tokenizer.json as"
              + " Hugging Face has it (default: by the ending of OUT).")
  @Nullable String format;

  @Option(
      names = "--dtype",
      paramLabel = "T",
      description =
          "f32, f16, bf16, or for gguf int8, which is its q8_0 (default: f16 in gguf, where only"
              + " matrices are; as stored in safetensors).")
  @Nullable String dtype;

  @Option(
      names = "--adapter",
      paramLabel = "DIR|NAME",
      description = "LoRA adapter to merge with IN (default: none).")
  @Nullable Path adapter;

  @Option(
      names = "--activation",
      paramLabel = "A",
      description = "What the model is said to run with (default: what IN says).")
  @Nullable Activation activation;

  @Mixin QuietOption quiet;

  @Override
  public Integer call() throws IOException {
    Terminal terminal = parent.terminal();
    boolean gguf = isGguf();
    Optional<DType> plain = gguf ? Optional.empty() : Optional.ofNullable(dtype).map(this::plain);
    GgmlType type = gguf ? ggml(dtype == null ? "f16" : dtype) : GgmlType.F32;
    if (gguf && Files.exists(out)) {
      throw new IOException(out + " exists already; give a new name or delete it");
    }
    ProgressBar bar = new ProgressBar(terminal, !quiet.set, "writing " + out.getFileName());
    try (Checkpoint checkpoint = NamedModels.find(in, adapter).open(activation)) {
      if (!quiet.set) {
        WeightsCommand.sayNotes(checkpoint, terminal);
      }
      if (gguf) {
        Vocabulary vocabulary = TokenizerFiles.vocabulary(checkpoint, Home.gpt2Tokenizer());
        WeightsCommand.writing(
            bar,
            terminal,
            out,
            progress -> Gpt2Gguf.write(checkpoint, vocabulary, type, out, progress));
        checkIds(checkpoint, List.of(out));
      } else {
        Map<String, byte[]> tokenizer = TokenizerFiles.files(checkpoint, Home.gpt2Tokenizer());
        WeightsCommand.writing(
            bar,
            terminal,
            out,
            progress -> Gpt2Safetensors.write(checkpoint, plain, tokenizer, out, progress));
        if (!tokenizer.isEmpty()) {
          boolean isFolder = Files.isDirectory(out);
          Path parent = out.toAbsolutePath().getParent();
          Path folder = isFolder || parent == null ? out : parent;
          List<Path> written = new ArrayList<>();
          for (String name : tokenizer.keySet()) {
            written.add(folder.resolve(name));
          }
          written.add(folder.resolve("config.json"));
          written.add(isFolder ? out.resolve("model.safetensors") : out);
          if (isFolder) {
            written.add(out);
          }
          checkIds(checkpoint, written);
        } else {
          terminal.say("loupe: %s has no tokenizer that %s could take along".formatted(in, out));
        }
      }
    }
    if (!quiet.set) {
      Path weights = Files.isDirectory(out) ? out.resolve("model.safetensors") : out;
      terminal.say("[wrote %s: %d bytes]".formatted(out, Files.size(weights)));
    }
    return 0;
  }

  /**
   * Opens what was written and compares the ids of some texts.
   *
   * @param written files that are deleted if an id differs
   */
  private void checkIds(Checkpoint checkpoint, List<Path> written) throws IOException {
    boolean same = false;
    try (Tokenizer before = Tokenizer.open(checkpoint, Home.gpt2Tokenizer());
        Checkpoint copy = Checkpoint.open(out);
        Tokenizer after =
            isGguf() ? Tokenizer.carriedBy(copy) : Tokenizer.open(copy, Home.gpt2Tokenizer())) {
      Optional<String> difference = TokenizerComparison.first(before, after);
      if (difference.isPresent()) {
        throw new CheckpointException(
            "%s: its tokenizer can't be carried to %s: %s"
                .formatted(checkpoint.source(), out, difference.get()));
      }
      same = true;
    } finally {
      for (Path file : same ? List.<Path>of() : written) {
        Files.deleteIfExists(file);
      }
    }
  }

  private boolean isGguf() {
    if (format == null) {
      String name = String.valueOf(out.getFileName());
      boolean gguf = name.endsWith(".gguf");
      if (gguf || name.endsWith(".safetensors") || !name.contains(".") || Files.isDirectory(out)) {
        return gguf;
      }
      throw new IllegalArgumentException(
          "the name %s says no format: give --format gguf or safetensors".formatted(name));
    }
    return switch (format) {
      case "gguf" -> true;
      case "safetensors" -> false;
      default ->
          throw new IllegalArgumentException(
              "no format \"%s\"; there are gguf and safetensors".formatted(format));
    };
  }

  private static GgmlType ggml(String name) {
    return name.equals("int8") ? GgmlType.Q8_0 : GgmlType.named(name);
  }

  private DType plain(String name) {
    return switch (name) {
      case "f32" -> DType.F32;
      case "f16" -> DType.F16;
      case "bf16" -> DType.BF16;
      case "int8", "q8_0" ->
          throw new IllegalArgumentException(name + " is for --format gguf: safetensors has none");
      default ->
          throw new IllegalArgumentException(
              "no type \"%s\"; there are f32, f16, bf16".formatted(name));
    };
  }
}
