package dev.loupe.cli;

import dev.loupe.BackendException;
import dev.loupe.sampling.NotFiniteException;
import dev.loupe.weights.CheckpointException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.concurrent.CancellationException;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.ScopeType;

/** The program: its commands, and what becomes of their errors. */
@Command(
    name = "loupe",
    description = "GPT-2 on the JVM: generates text and shows what every head attended to.",
    mixinStandardHelpOptions = true,
    versionProvider = Main.Version.class,
    subcommands = {
      GenerateCommand.class,
      AttentionCommand.class,
      WeightsCommand.class,
      DoctorCommand.class
    },
    exitCodeListHeading = "%nExit codes:%n",
    exitCodeList = {
      "0:done",
      "1:a result could not be written, or a defect of Loupe",
      "2:bad usage",
      "3:bad input file",
      "4:backend not available",
      "5:out of memory",
      "130:interrupted"
    })
public final class Main {
  static final int DEFECT = 1;
  static final int BAD_USAGE = 2;
  static final int BAD_INPUT = 3;
  static final int NO_BACKEND = 4;
  static final int OUT_OF_MEMORY = 5;

  private final Terminal terminal;

  @Option(
      names = {"-v", "--verbose"},
      scope = ScopeType.INHERIT,
      description = "Stack traces with errors.")
  boolean verbose;

  private Main(Terminal terminal) {
    this.terminal = terminal;
  }

  public static void main(String[] args) {
    System.exit(run(Terminal.system(), args));
  }

  Terminal terminal() {
    return terminal;
  }

  /** Runs one command and gives its exit code. */
  static int run(Terminal terminal, String... args) {
    Main main = new Main(terminal);
    CommandLine commandLine =
        new CommandLine(main)
            .setCaseInsensitiveEnumValuesAllowed(true)
            .setUsageHelpWidth(Math.clamp(terminal.columns(), 60, 100))
            .setParameterExceptionHandler(
                (e, given) -> {
                  String command = e.getCommandLine().getCommandSpec().qualifiedName(" ");
                  terminal.say("loupe: %s (try %s --help)".formatted(sentence(e), command));
                  return BAD_USAGE;
                })
            .setExecutionExceptionHandler((e, command, parsed) -> main.report(e));
    commandLine.setOut(terminal.writer());
    try {
      return commandLine.execute(args);
    } catch (OutOfMemoryError e) {
      return main.report(e);
    }
  }

  /** Says what went wrong in one sentence. */
  private int report(Throwable e) {
    int code =
        switch (e) {
          case Terminal.BrokenPipe _ -> 0; // whoever read has had enough
          case CancellationException _ -> Interrupt.EXIT_CODE;
          case CheckpointException _ -> BAD_INPUT;
          case InputException _ -> BAD_INPUT;
          case NotFiniteException _ -> BAD_INPUT;
          case BackendException _ -> NO_BACKEND;
          case OutOfMemoryError _ -> OUT_OF_MEMORY;
          case IllegalArgumentException _ -> BAD_USAGE;
          default -> DEFECT;
        };
    if (code != 0) {
      terminal.say("loupe: " + (code == OUT_OF_MEMORY ? outOfMemory(e) : sentence(e)));
    }
    if (verbose) {
      StringWriter trace = new StringWriter();
      e.printStackTrace(new PrintWriter(trace, true));
      terminal.say(trace.toString());
    }
    return code;
  }

  private static String outOfMemory(Throwable e) {
    return "out of memory (%s): use a smaller model, a shorter text or fewer samples, layers or heads"
        .formatted(e.getMessage());
  }

  private static String sentence(Throwable e) {
    String message = e.getMessage();
    return message == null || message.isBlank()
        ? e.getClass().getSimpleName()
        : message.lines().findFirst().orElse(message);
  }

  /** The version of the jar, or that it was not built as one. */
  static final class Version implements CommandLine.IVersionProvider {
    @Override
    public String[] getVersion() {
      String version = Main.class.getPackage().getImplementationVersion();
      return new String[] {
        "loupe %s, Java %s".formatted(version == null ? "(unpackaged)" : version, Runtime.version())
      };
    }
  }
}
