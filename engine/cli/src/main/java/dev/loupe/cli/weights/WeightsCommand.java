package dev.loupe.cli.weights;

import dev.loupe.cli.options.LoupeCommand;
import dev.loupe.cli.terminal.Interrupt;
import dev.loupe.cli.terminal.ProgressBar;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.io.Progress;
import java.io.IOException;
import java.nio.file.Path;
import java.util.concurrent.CancellationException;
import picocli.CommandLine.Command;
import picocli.CommandLine.ParentCommand;

/** {@code loupe weights}: what is in a checkpoint, other formats, and checkpoints for tests. */
@Command(
    name = "weights",
    description = "Inspect, convert, compare, fetch and make GPT-2 checkpoints.",
    synopsisSubcommandLabel = "COMMAND ...",
    optionListHeading = "%n",
    commandListHeading = "%nCommands:%n",
    subcommands = {
      InspectCommand.class,
      ConvertCommand.class,
      VerifyCommand.class,
      PullCommand.class,
      MakeRandomCommand.class
    })
public final class WeightsCommand {
  @ParentCommand LoupeCommand parent;

  /** The streams of this run. */
  Terminal terminal() {
    return parent.terminal();
  }

  /** Says what the checkpoint leaves open. */
  static void sayNotes(Checkpoint checkpoint, Terminal terminal) {
    checkpoint.notes().forEach(note -> terminal.say("[%s]".formatted(note)));
  }

  /** Long work that reports how far it has come. */
  interface Work {
    void run(Progress progress) throws IOException;
  }

  /** Writes {@code out} with a bar; an interrupt ends it, and what was begun is removed. */
  static void writing(ProgressBar bar, Terminal terminal, Path out, Work work) throws IOException {
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
