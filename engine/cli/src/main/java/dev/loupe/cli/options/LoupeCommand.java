package dev.loupe.cli.options;

import dev.loupe.cli.terminal.Terminal;
import java.util.List;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.ScopeType;

/**
 * {@code loupe} itself, above all commands: its help, the options that each of them has, the exit
 * codes that its help lists, and the terminal of this run.
 */
@Command(
    name = "loupe",
    description = "GPT-2 on the JVM: generates text and shows what every head attended to.",
    synopsisSubcommandLabel = "COMMAND ...",
    optionListHeading = "%n",
    commandListHeading = "%nCommands:%n",
    versionProvider = LoupeCommand.Version.class,
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
      "A long option that is not given takes its value from the environment: LOUPE_THREADS=2 is"
          + " --threads 2. The file ~/.loupe.properties does the same: threads=2, or"
          + " loupe.generate.threads=2 for one command."
    })
public final class LoupeCommand {
  private final Terminal terminal;

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
  public boolean verbose;

  @Option(
      names = {"-V", "--version"},
      versionHelp = true,
      description = "Show the versions of Loupe and Java.")
  boolean version;

  public LoupeCommand(Terminal terminal) {
    this.terminal = terminal;
  }

  /** The streams of this run. */
  public Terminal terminal() {
    return terminal;
  }

  /** The version of the jar, or that it was not built as one. */
  public static final class Version implements CommandLine.IVersionProvider {
    /** The names of the option that asks for it. */
    public static final List<String> NAMES = List.of("-V", "--version");

    @Override
    public String[] getVersion() {
      return new String[] {line()};
    }

    /** For people, on one line. */
    public static String line() {
      String version = Version.class.getPackage().getImplementationVersion();
      String known = version == null ? "(built from source)" : version;
      return String.join("", "loupe ", known, ", Java ", Runtime.version().toString());
    }
  }
}
