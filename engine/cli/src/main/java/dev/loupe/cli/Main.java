package dev.loupe.cli;

import dev.loupe.Backend;
import dev.loupe.corpus.CorpusException;
import dev.loupe.corpus.Preparation;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.GpuMemoryException;
import dev.loupe.export.HeadTable;
import dev.loupe.generate.BrokenRunException;
import dev.loupe.ops.BackendException;
import dev.loupe.ops.Gemm;
import dev.loupe.ops.Precision;
import dev.loupe.sampling.NotFiniteException;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.FileFault;
import dev.loupe.weights.tensor.DType;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.nio.file.FileSystemException;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CancellationException;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.ScopeType;
import picocli.CommandLine.TypeConversionException;
import picocli.CommandLine.UnmatchedArgumentException;

/** The program: its commands, and what becomes of their errors. */
@Command(
    name = "loupe",
    description = "GPT-2 on the JVM: generates text and shows what every head attended to.",
    synopsisSubcommandLabel = "COMMAND ...",
    optionListHeading = "%n",
    commandListHeading = "%nCommands:%n",
    versionProvider = Main.Version.class,
    exitCodeListHeading = "%nExit codes:%n",
    exitCodeList = {
      "0:done",
      "1:a result could not be written or fetched, models differ, or a defect",
      "2:bad usage",
      "3:bad input file",
      "4:backend not available, or the GPU failed",
      "5:out of memory",
      "129, 130, 143:ended by SIGHUP, SIGINT (Ctrl-C), SIGTERM"
    },
    footerHeading = "%nTo begin with:%n",
    footer = {
      "  loupe generate \"ROMEO:\"",
      "  loupe attention \"To be or not to be\"",
      "  loupe generate --help",
      "",
      "LOUPE_THREADS=2 in the environment stands for --threads 2 where that is not given, and so"
          + " for every long option. The file ~/.loupe.properties may say the same: threads=2, or"
          + " loupe.generate.threads=2 for one command alone."
    })
public final class Main {
  static final int FAILED = 1;
  static final int BAD_USAGE = 2;
  static final int BAD_INPUT = 3;
  static final int NO_BACKEND = 4;
  static final int OUT_OF_MEMORY = 5;

  private static final List<Class<?>> COMMANDS =
      List.of(
          GenerateCommand.class,
          AttentionCommand.class,
          HeadsCommand.class,
          LensCommand.class,
          CompareCommand.class,
          ServeCommand.class,
          CorpusCommand.class,
          WeightsCommand.class,
          BenchCommand.class,
          DoctorCommand.class,
          CompletionCommand.class);

  private final Terminal terminal;
  private final Defaults defaults;

  @Option(
      names = {"-h", "--help"},
      scope = ScopeType.INHERIT,
      usageHelp = true,
      description = "Show this help.")
  boolean help;

  @Option(
      names = {"-v", "--verbose"},
      scope = ScopeType.INHERIT,
      description = "Stack traces with errors.")
  boolean verbose;

  @Option(
      names = {"-V", "--version"},
      versionHelp = true,
      description = "Show the versions of Loupe and Java.")
  boolean version;

  private Main(Terminal terminal, Defaults defaults) {
    this.terminal = terminal;
    this.defaults = defaults;
  }

  public static void main(String[] args) {
    int code = FAILED;
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

  /** Java does not say why it can't read a class; it opens some forty files for all of them. */
  private static String missing(Throwable e) {
    return "Java can't load a part of Loupe ("
        + e.getMessage()
        + "): raise the limit of open files (ulimit -n) to 64 or more, or build Loupe anew";
  }

  Terminal terminal() {
    return terminal;
  }

  private static String commandsOf(CommandSpec spec) {
    return "there are " + String.join(", ", spec.subcommands().keySet());
  }

  /** Runs one command, with nothing but its arguments, and gives its exit code. */
  static int run(Terminal terminal, String... args) {
    return run(terminal, Defaults::none, args);
  }

  static int run(Terminal terminal, Supplier<Defaults> defaults, String... args) {
    Main main = new Main(terminal, Defaults.none());
    StringWriter help = new StringWriter();
    try {
      main = new Main(terminal, defaults.get());
      int code = main.commandLine(help, args).execute(args);
      if (!help.toString().isEmpty()) {
        terminal.print(help.toString());
      }
      return code;
    } catch (Throwable e) { // errors of the virtual machine too: memory, native libraries
      return main.report(e);
    }
  }

  /** All commands, for what is to be said about the whole program. */
  CommandLine withAllCommands() {
    CommandLine all = new CommandLine(this);
    addCommands(all);
    return all;
  }

  private CommandLine commandLine(StringWriter help, String... args) {
    if (defaults.hasFile()) {
      defaults.check(withAllCommands().getCommandSpec());
    }
    defaults.given(args);
    CommandLine commandLine = new CommandLine(this);
    addCommands(commandLine, args); // first: what follows is told to those that are there
    commandLine
        .setExpandAtFiles(false) // a text may well start with @
        .setUsageHelpWidth(Math.clamp(terminal.columns(), 55, 100))
        .setOut(new PrintWriter(help))
        .setParameterExceptionHandler((e, given) -> reportUsage(e))
        .setExecutionExceptionHandler((e, command, parsed) -> report(e))
        .setDefaultValueProvider(defaults);
    values(commandLine);
    return commandLine;
  }

  /**
   * Only the one that is asked for, if it is clear at once: to read all takes a tenth of a second.
   */
  private static void addCommands(CommandLine commandLine, String... args) {
    String first = args.length == 0 ? "" : args[0];
    List<Class<?>> asked = COMMANDS.stream().filter(c -> nameOf(c).equals(first)).toList();
    for (Class<?> command : asked.isEmpty() ? COMMANDS : asked) {
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

  /** How arguments are read, and what is said of those that can't be. */
  private static void values(CommandLine commandLine) {
    String whole = "a whole number up to %d";
    CommandLine.ITypeConverter<Integer> ints =
        value(Integer::valueOf, whole.formatted(Integer.MAX_VALUE));
    CommandLine.ITypeConverter<Long> longs = value(Long::valueOf, whole.formatted(Long.MAX_VALUE));
    commandLine.registerConverter(int.class, ints).registerConverter(Integer.class, ints);
    commandLine.registerConverter(long.class, longs).registerConverter(Long.class, longs);
    commandLine.registerConverter(double.class, value(Double::valueOf, "a number"));
    commandLine.registerConverter(
        Backend.class,
        value(text -> Backend.valueOf(text.toUpperCase(Locale.ROOT)), "auto, cpu or cuda"));
    commandLine.registerConverter(
        Precision.class,
        value(text -> Precision.valueOf(text.toUpperCase(Locale.ROOT)), "f32, f16, bf16 or int8"));
    commandLine.registerConverter(
        Gemm.class,
        value(text -> Gemm.valueOf(text.toUpperCase(Locale.ROOT)), "auto, own or cublas"));
    commandLine.registerConverter(
        Activation.class,
        value(
            text -> Activation.named(text.toLowerCase(Locale.ROOT)),
            Arrays.stream(Activation.values())
                .map(Activation::configName)
                .collect(Collectors.joining(", "))));
    commandLine.registerConverter(
        DType.class, value(text -> DType.valueOf(text.toUpperCase(Locale.ROOT)), "f32 or f16"));
    commandLine.registerConverter(
        HeadTable.Column.class,
        value(
            text -> HeadTable.Column.valueOf(text.toUpperCase(Locale.ROOT)),
            Arrays.stream(HeadTable.Column.values())
                .map(HeadTable.Column::title)
                .collect(Collectors.joining(", "))));
    commandLine.registerConverter(
        GenerateCommand.Overflow.class,
        value(
            text -> GenerateCommand.Overflow.valueOf(text.toUpperCase(Locale.ROOT)),
            "error or slide"));
    commandLine.registerConverter(
        InterventionOptions.Ablation.class,
        value(
            text -> InterventionOptions.Ablation.valueOf(text.toUpperCase(Locale.ROOT)),
            "zero or mean"));
    commandLine.registerConverter(
        CompareCommand.Masking.class,
        value(
            text -> CompareCommand.Masking.valueOf(text.toUpperCase(Locale.ROOT)),
            "causal or none"));
    commandLine.registerConverter(
        Preparation.Format.class,
        value(
            text -> Preparation.Format.valueOf(text.toUpperCase(Locale.ROOT)),
            "auto, text, lines, json or parquet"));
    commandLine.registerConverter(
        Preparation.LongTexts.class,
        value(
            text -> Preparation.LongTexts.valueOf(text.toUpperCase(Locale.ROOT)),
            "windows or refuse"));
  }

  private static <T> CommandLine.ITypeConverter<T> value(
      Function<String, T> reader, String expected) {
    return text -> {
      try {
        return reader.apply(text.strip());
      } catch (IllegalArgumentException e) { // NumberFormatException is one
        throw new TypeConversionException("'%s' is not %s".formatted(text, expected));
      }
    };
  }

  private int reportUsage(ParameterException e) {
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
    return BAD_USAGE;
  }

  /** Says what went wrong in one sentence. */
  private int report(Throwable e) {
    if (e instanceof Terminal.BrokenPipe) {
      return 0; // whoever read has had enough
    }
    int code = codeOf(e);
    String said =
        switch (code) {
          case OUT_OF_MEMORY -> outOfMemory(e);
          case FAILED -> failure(e);
          case BAD_INPUT ->
              e instanceof InternalError
                  ? "a file in use was cut short by another program, or its disk failed: run this again"
                  : firstLine(e);
          case BAD_USAGE -> firstLine(e) + defaults.sources();
          case NO_BACKEND ->
              e instanceof GpuException || e.getCause() instanceof GpuException
                  ? firstLine(e) + " (--backend cpu)"
                  : firstLine(e);
          default -> firstLine(e);
        };
    ("loupe: " + said).lines().forEach(terminal::say); // the GPU's of memory has a table
    if (verbose) {
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
      case CheckpointException _ -> BAD_INPUT;
      case InputException _ -> BAD_INPUT;
      case UncheckedIOException unchecked
          when unchecked.getCause() instanceof CheckpointException ->
          BAD_INPUT;
      case InternalError page when Checkpoint.isUnreadablePage(page) -> BAD_INPUT;
      case CorpusException _ -> BAD_INPUT;
      case NotFiniteException _ -> BAD_INPUT;
      case BackendException _ -> NO_BACKEND;
      case GpuMemoryException _ -> OUT_OF_MEMORY;
      case GpuException _ -> NO_BACKEND;
      case OutOfMemoryError _ -> OUT_OF_MEMORY;
      case IllegalArgumentException _ -> BAD_USAGE;
      case null, default -> FAILED;
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
      return missing(e);
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

  /** The version of the jar, or that it was not built as one. */
  static final class Version implements CommandLine.IVersionProvider {
    @Override
    public String[] getVersion() {
      String version = Main.class.getPackage().getImplementationVersion();
      return new String[] {
        "loupe %s, Java %s"
            .formatted(version == null ? "(built from source)" : version, Runtime.version())
      };
    }
  }
}
