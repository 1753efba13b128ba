package dev.loupe.cli.weights;

import dev.loupe.cli.options.NamedModels;
import dev.loupe.cli.options.QuietOption;
import dev.loupe.cli.terminal.Interrupt;
import dev.loupe.cli.terminal.ProgressBar;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.hub.Hub;
import dev.loupe.hub.HubSettings;
import dev.loupe.hub.ModelName;
import dev.loupe.hub.Pull;
import dev.loupe.hub.SeveralFilesException;
import dev.loupe.text.Count;
import dev.loupe.weights.io.CheckpointException;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CancellationException;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.ParentCommand;

/** {@code loupe weights pull}: a model from a hub. */
@Command(
    name = "pull",
    description = "Fetch a model from a hub; run it again to go on where it ended.",
    parameterListHeading = "%n",
    footerHeading =
        "%nThe environment: HF_ENDPOINT, HF_TOKEN, https_proxy, no_proxy.%n%nExamples:%n",
    footer = {
      "  loupe weights pull openai-community/gpt2",
      "  loupe generate -m openai-community/gpt2 \"Once upon a time\"",
      "  loupe weights pull OWNER/MODEL-GGUF --file model-q4_k_m.gguf"
    })
final class PullCommand implements Callable<Integer> {
  @ParentCommand WeightsCommand parent;

  @Parameters(
      index = "0",
      paramLabel = "NAME[@REVISION]",
      description = "The model, as OWNER/MODEL; a branch, tag or commit (default: main).")
  String name;

  @Parameters(
      index = "1",
      arity = "0..1",
      paramLabel = "DIR",
      description = "Where to put it (default: Loupe's cache, where -m NAME finds it).")
  @Nullable Path folder;

  @Option(
      names = "--file",
      paramLabel = "F",
      description = "Which weights file to take, for example a .gguf (default: the usual names).")
  @Nullable String file;

  @Option(
      names = "--hub",
      paramLabel = "URL",
      description = "The hub (default: HF_ENDPOINT, or else Hugging Face's).")
  @Nullable String hub;

  @Mixin QuietOption quiet;

  @Override
  public Integer call() throws IOException {
    Terminal terminal = parent.terminal();
    ModelName model = ModelName.of(name);
    Path target = folder == null ? NamedModels.cache().folder(model) : folder;
    HubSettings settings = HubSettings.of(hub, System::getenv, System.getProperty("user.home", ""));
    Pull.Pulled pulled = pull(settings, model, target, terminal);
    if (!pulled.hasTokenizer()) {
      terminal.say(
          "loupe: %s has no tokenizer: copy a tokenizer.json to %s".formatted(model, target));
    }
    if (!quiet.set) {
      terminal.say(
          "[pulled %s: %s, %.1f MB, %.1f MB of them now, in %s]"
              .formatted(
                  model,
                  Count.of(pulled.files().size(), "file"),
                  pulled.bytes() / 1e6,
                  pulled.fetched() / 1e6,
                  target));
    }
    return 0;
  }

  private Pull.Pulled pull(HubSettings settings, ModelName model, Path target, Terminal terminal)
      throws IOException {
    ProgressBar bar = new ProgressBar(terminal, !quiet.set, "pulling " + model);
    try (Hub from = new Hub(settings);
        Interrupt interrupt = new Interrupt(terminal)) {
      interrupt.onlyAsk(); // what has come is put in order for the next time
      return Pull.run(
          from,
          model,
          Optional.ofNullable(file),
          target,
          (done, total) -> {
            bar.update(done, total);
            if (interrupt.asked()) {
              throw new CancellationException(
                  "interrupted; the same command goes on where this one ended");
            }
          });
    } catch (SeveralFilesException e) {
      throw new CheckpointException(e.getMessage() + " (--file)", e);
    } finally {
      bar.clear();
    }
  }
}
