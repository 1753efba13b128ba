package dev.loupe.cli;

import dev.loupe.cli.options.LoupeCommand;
import dev.loupe.cli.terminal.ExitCode;
import dev.loupe.cli.terminal.InputException;
import dev.loupe.cli.terminal.Interrupt;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.corpus.CorpusException;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.GpuMemoryException;
import dev.loupe.generate.BrokenRunException;
import dev.loupe.ops.BackendException;
import dev.loupe.sampling.NotFiniteException;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.FileFault;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.nio.file.FileSystemException;
import java.util.concurrent.CancellationException;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.UnmatchedArgumentException;

/** Says in one sentence why a command failed, and gives its exit code. */
final class Failures {
  private final LoupeCommand loupe;
  private final Terminal terminal;
  private final Defaults defaults;

  /**
   * @param loupe whose options say whether stack traces are wanted
   * @param defaults whose origin is said where one of them may be wrong
   */
  Failures(LoupeCommand loupe, Defaults defaults) {
    this.loupe = loupe;
    this.terminal = loupe.terminal();
    this.defaults = defaults;
  }

  /** Of arguments that can't be read, with the help that would say how. */
  int reportUsage(ParameterException e) {
    CommandLine command = e.getCommandLine();
    String what = firstLine(e) + defaults.source(e.getArgSpec());
    if (e instanceof UnmatchedArgumentException unmatched) {
      String first = unmatched.getUnmatched().getFirst();
      if (unmatched.isUnknownOption()) {
        what = "there is no option " + first;
        if (first.contains(" ")) {
          what += "; put -- before a text that starts with -";
        } else if (!unmatched.getSuggestions().isEmpty()) {
          what += "; is %s meant?".formatted(unmatched.getSuggestions().getFirst());
        }

      } else if (command.getSubcommands().isEmpty()) {
        what = "\"%s\" is one argument too many: put a text in quotes".formatted(first);
      } else {
        what = "there is no command %s; ".formatted(first) + commandsOf(command.getCommandSpec());
      }
    } else if (e.getClass() == ParameterException.class && !command.getSubcommands().isEmpty()) {
      what = "no command given; " + commandsOf(command.getCommandSpec());
    }
    terminal.say(
        "loupe: %s (try %s --help)".formatted(what, command.getCommandSpec().qualifiedName(" ")));
    return ExitCode.BAD_USAGE;
  }

  /** Of what a command threw. */
  int report(Throwable e) {
    if (e instanceof Terminal.BrokenPipe) {
      return 0; // whoever read has had enough
    }
    int code = codeOf(e);
    String said =
        switch (code) {
          case ExitCode.OUT_OF_MEMORY -> outOfMemory(e);
          case ExitCode.FAILED -> failure(e);
          case ExitCode.BAD_INPUT ->
              e instanceof InternalError
                  ? "a file in use was cut short by another program, or its disk failed: run this again"
                  : firstLine(e);
          case ExitCode.BAD_USAGE -> firstLine(e) + defaults.sources();
          case ExitCode.NO_BACKEND ->
              e instanceof GpuException || e.getCause() instanceof GpuException
                  ? firstLine(e) + " (--backend cpu)"
                  : firstLine(e);
          default -> firstLine(e);
        };
    ("loupe: " + said).lines().forEach(terminal::say); // the GPU's of memory has a table
    if (loupe.verbose) {
      StringWriter trace = new StringWriter();
      e.printStackTrace(new PrintWriter(trace, true));
      trace.toString().lines().map(line -> line.replace("\t", "    ")).forEach(terminal::say);
    }
    return code;
  }

  private static int codeOf(@Nullable Throwable e) {
    return switch (e) {
      case BrokenRunException broken -> codeOf(broken.getCause());
      case CancellationException _ -> Interrupt.exitCode();
      case CheckpointException _ -> ExitCode.BAD_INPUT;
      case InputException _ -> ExitCode.BAD_INPUT;
      case UncheckedIOException unchecked
          when unchecked.getCause() instanceof CheckpointException ->
          ExitCode.BAD_INPUT;
      case InternalError page when Checkpoint.isUnreadablePage(page) -> ExitCode.BAD_INPUT;
      case CorpusException _ -> ExitCode.BAD_INPUT;
      case NotFiniteException _ -> ExitCode.BAD_INPUT;
      case BackendException _ -> ExitCode.NO_BACKEND;
      case GpuMemoryException _ -> ExitCode.OUT_OF_MEMORY;
      case GpuException _ -> ExitCode.NO_BACKEND;
      case OutOfMemoryError _ -> ExitCode.OUT_OF_MEMORY;
      case IllegalArgumentException _ -> ExitCode.BAD_USAGE;
      case null, default -> ExitCode.FAILED;
    };
  }

  private static String outOfMemory(Throwable e) {
    if (!(e instanceof OutOfMemoryError)) {
      String advice = String.valueOf(e.getMessage()); // the GPU's own; a table follows it
      return advice.replaceFirst("(?m)$", " (--dtype, --backend)");
    }
    String message = String.valueOf(e.getMessage());
    if (message.contains("native thread")) { // Java's word for it is the same as for memory
      return "the system gives no more threads: raise the limit (ulimit -u, or the container's), or"
          + " take fewer (--threads 1)";
    }
    return "out of memory (%s): use a smaller model, a shorter text or fewer samples, layers or heads"
        .formatted(message);
  }

  private static String failure(Throwable e) {
    return switch (e) {
      case FileSystemException file ->
          "%s: %s".formatted(file.getFile(), FileFault.of(file)); // no reason in its message
      case IOException io -> firstLine(io);
      case UncheckedIOException unchecked -> firstLine(unchecked);
      default -> defect(e);
    };
  }

  private static String defect(Throwable e) {
    if (e instanceof LinkageError || e instanceof TypeNotPresentException) {
      return Main.missing(e);
    }
    return "a defect of Loupe, please report it: %s%s (-v shows where)"
        .formatted(e.getClass().getSimpleName(), e.getMessage() == null ? "" : ", " + firstLine(e));
  }

  private static String firstLine(Throwable e) {
    @Nullable String message = e.getMessage();
    return message == null || message.isBlank()
        ? e.getClass().getSimpleName()
        : message.lines().findFirst().orElse(message);
  }

  private static String commandsOf(CommandSpec spec) {
    return "there are " + String.join(", ", spec.subcommands().keySet());
  }
}
