package dev.loupe.cli;

import dev.loupe.cli.options.LoupeCommand;
import java.util.Locale;
import java.util.concurrent.Callable;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import picocli.AutoComplete;
import picocli.CommandLine.Command;
import picocli.CommandLine.ParentCommand;

/** {@code loupe completion}: what lets a shell complete commands and options. */
@Command(
    name = "completion",
    description = "Print the script that lets bash or zsh complete commands and options.",
    abbreviateSynopsis = true,
    optionListHeading = "%n",
    footerHeading = "%nIn ~/.bashrc or ~/.zshrc:%n",
    footer = "  source <(loupe completion)")
final class CompletionCommand implements Callable<Integer> {
  /** The values of an option. */
  private static final Pattern VALUES =
      Pattern.compile("  local \\w+_option_args=(.*) # (--\\S+) values");

  /** Where the values of the option of that case are used. */
  private static final Pattern CASE = Pattern.compile("    '(--[a-z-]+)'\\)");

  private static final Pattern USE = Pattern.compile("\\$\\{\\w+_option_args\\[");

  @ParentCommand LoupeCommand parent;

  @Override
  public Integer call() {
    parent.terminal().print(named(AutoComplete.bash("loupe", Main.withAllCommands(parent))));
    return 0;
  }

  /**
   * The script with values in small letters, in variables named by their options. Picocli names
   * them by what the help has for a value, which several options of a command share.
   */
  private static String named(String script) {
    StringBuilder all = new StringBuilder();
    String option = "";
    for (String line : script.lines().toList()) {
      Matcher values = VALUES.matcher(line);
      Matcher label = CASE.matcher(line);
      if (values.matches()) {
        line =
            "  local %s=%s"
                .formatted(variable(values.group(2)), values.group(1).toLowerCase(Locale.ROOT));
      } else if (label.matches()) {
        option = label.group(1);
      }
      all.append(USE.matcher(line).replaceAll("\\${" + variable(option) + "[")).append('\n');
    }
    return all.toString();
  }

  private static String variable(String option) {
    return option.substring(Math.min(2, option.length())).replace('-', '_') + "_values";
  }
}
