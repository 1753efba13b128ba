package dev.loupe.cli;

import dev.loupe.cli.bench.BenchCommand;
import dev.loupe.cli.bench.KernelBenchCommand;
import dev.loupe.cli.corpus.CorpusCommand;
import dev.loupe.cli.options.LoupeCommand;
import dev.loupe.cli.run.AttentionCommand;
import dev.loupe.cli.run.CompareCommand;
import dev.loupe.cli.run.GenerateCommand;
import dev.loupe.cli.run.HeadsCommand;
import dev.loupe.cli.run.LensCommand;
import dev.loupe.cli.run.ServeCommand;
import dev.loupe.cli.run.TraceCommand;
import dev.loupe.cli.terminal.ExitCode;
import dev.loupe.cli.terminal.Terminal;
import dev.loupe.cli.weights.WeightsCommand;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.function.Supplier;
import picocli.CommandLine;
import picocli.CommandLine.Command;

/** The program: starts the command that its arguments name. */
public final class Main {
  /** In a class of its own, so that none of them is loaded where none is needed. */
  private static final class Commands {
    static final List<Class<?>> ALL =
        List.of(
            GenerateCommand.class,
            AttentionCommand.class,
            HeadsCommand.class,
            LensCommand.class,
            CompareCommand.class,
            TraceCommand.class,
            ServeCommand.class,
            CorpusCommand.class,
            WeightsCommand.class,
            BenchCommand.class,
            DoctorCommand.class,
            CompletionCommand.class);
  }

  public static void main(String[] args) {
    if (args.length == 1 && LoupeCommand.Version.NAMES.contains(args[0]) && printsVersion()) {
      System.exit(0);
    }
    int code = ExitCode.FAILED;
    try {
      Path home = Path.of(System.getProperty("user.home", ""));
      code =
          run(
              Terminal.system(),
              () -> Defaults.of(System::getenv, home.resolve(".loupe.properties")),
              args);
    } catch (LinkageError | TypeNotPresentException e) { // also of what would have reported it
      System.err.println("loupe: " + missing(e));
    }
    System.exit(code);
  }

  /**
   * The version without a command line, which takes longer to build than Java to start; false if
   * standard output takes no line, which {@link #run} then says as of any command.
   */
  private static boolean printsVersion() {
    String line = LoupeCommand.Version.line().concat(System.lineSeparator());
    try {
      new FileOutputStream(FileDescriptor.out).write(line.getBytes(StandardCharsets.UTF_8));
      return true;
    } catch (IOException e) {
      return false;
    }
  }

  /** Java does not say why it can't read a class; it opens some forty files for all of them. */
  static String missing(Throwable e) {
    return "Java can't load a part of Loupe ("
        + e.getMessage()
        + "): raise the limit of open files (ulimit -n) to 64 or more, or build Loupe anew";
  }

  /** Runs one command, with nothing but its arguments, and gives its exit code. */
  static int run(Terminal terminal, String... args) {
    return run(terminal, Defaults::none, args);
  }

  static int run(Terminal terminal, Supplier<Defaults> defaults, String... args) {
    LoupeCommand loupe = new LoupeCommand(terminal);
    Failures failures = new Failures(loupe, Defaults.none());
    StringWriter help = new StringWriter();
    try {
      Defaults known = defaults.get();
      failures = new Failures(loupe, known);
      int code = commandLine(loupe, known, failures, help, args).execute(args);
      if (!help.toString().isEmpty()) {
        terminal.print(help.toString());
      }
      return code;
    } catch (Throwable e) { // errors of the virtual machine too: memory, native libraries
      return failures.report(e);
    }
  }

  /** All commands, for what is to be said about the whole program. */
  static CommandLine withAllCommands(LoupeCommand loupe) {
    CommandLine all = new CommandLine(loupe);
    addCommands(all);
    return all;
  }

  private static CommandLine commandLine(
      LoupeCommand loupe, Defaults defaults, Failures failures, StringWriter help, String... args) {
    if (defaults.hasFile()) {
      defaults.check(withAllCommands(loupe).getCommandSpec());
    }
    defaults.given(args);
    CommandLine commandLine = new CommandLine(loupe);
    addCommands(commandLine, args); // first: what follows is told to those that are there
    commandLine
        .setExpandAtFiles(false) // a text may well start with @
        .setUsageHelpWidth(Math.clamp(loupe.terminal().columns(), 55, 100))
        .setOut(new PrintWriter(help))
        .setParameterExceptionHandler((e, given) -> failures.reportUsage(e))
        .setExecutionExceptionHandler((e, command, parsed) -> failures.report(e))
        .setDefaultValueProvider(defaults);
    Converters.register(commandLine);
    return commandLine;
  }

  /**
   * Only the one that is asked for, if it is clear at once: to read all takes a tenth of a second.
   */
  private static void addCommands(CommandLine commandLine, String... args) {
    String first = args.length == 0 ? "" : args[0];
    List<Class<?>> asked = Commands.ALL.stream().filter(c -> nameOf(c).equals(first)).toList();
    for (Class<?> command : asked.isEmpty() ? Commands.ALL : asked) {
      commandLine.addSubcommand(command);
    }
    CommandLine bench = commandLine.getSubcommands().get(nameOf(BenchCommand.class));
    if (bench != null) {
      KernelBenchCommand.addTo(bench);
    }
  }

  private static String nameOf(Class<?> command) {
    return command.getAnnotation(Command.class).name();
  }
}
