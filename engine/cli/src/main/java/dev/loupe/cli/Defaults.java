package dev.loupe.cli;

import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import java.io.IOException;
import java.io.StringReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.IDefaultValueProvider;
import picocli.CommandLine.Model.ArgSpec;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Model.OptionSpec;

/**
 * What options are where an argument does not say it: by {@code LOUPE_THREADS} in the environment,
 * then by {@code loupe.generate.threads} and by {@code threads} in a properties file, which are
 * picocli's names. Options without a long name have none of these.
 */
final class Defaults implements IDefaultValueProvider {
  private static final int LONGEST_FILE = 1 << 20;
  private static final List<String> ASKS = List.of("-h", "--help", "-V", "--version");

  /** A default and where it came from. */
  private record Found(String value, String source) {}

  private final Function<String, @Nullable String> environment;
  private final Path file;
  private final Properties properties;
  private final Map<OptionSpec, Found> used = new HashMap<>();
  private List<String> args = List.of();

  private Defaults(
      Function<String, @Nullable String> environment, Path file, Properties properties) {
    this.environment = environment;
    this.file = file;
    this.properties = properties;
  }

  static Defaults none() {
    return new Defaults(_ -> null, Path.of(""), new Properties());
  }

  /**
   * Reads the file, if there is one.
   *
   * @throws IllegalArgumentException if it is no file of properties
   */
  static Defaults of(Function<String, @Nullable String> environment, Path file) {
    Properties properties = new Properties();
    if (Files.exists(file)) {
      try {
        properties.load(new StringReader(InputFile.read(file, LONGEST_FILE, "options").text()));
      } catch (CheckpointException e) {
        throw new IllegalArgumentException(e.getMessage(), e);
      } catch (IOException | IllegalArgumentException e) {
        throw new IllegalArgumentException("%s: %s".formatted(file, e.getMessage()), e);
      }
    }
    return new Defaults(environment, file, properties);
  }

  /** What stands on the command line goes before; help needs no defaults. */
  void given(String... words) {
    args = Arrays.stream(words).takeWhile(word -> !word.equals("--")).toList();
  }

  @Override
  public @Nullable String defaultValue(ArgSpec argument) {
    if (!(argument instanceof OptionSpec option)
        || option.hidden()
        || option.usageHelp()
        || option.versionHelp()
        || args.stream().anyMatch(ASKS::contains)
        || args.stream().anyMatch(word -> names(word, option))) {
      return null;
    }
    Optional<Found> found = find(option);
    found.ifPresent(value -> used.put(option, value));
    return found.map(Found::value).orElse(null);
  }

  private static boolean names(String word, OptionSpec option) {
    return Arrays.stream(option.names())
        .anyMatch(
            name ->
                word.equals(name)
                    || word.startsWith(name + "=")
                    || (name.length() == 2 && word.startsWith(name) && option.arity().max() > 0));
  }

  private Optional<Found> find(OptionSpec option) {
    String name = option.longestName();
    if (!name.startsWith("--")) {
      return Optional.empty();
    }
    String key = name.substring(2);
    String variable = "LOUPE_" + key.replace('-', '_').toUpperCase(Locale.ROOT);
    String value = environment.apply(variable);
    if (value != null) {
      return Optional.of(new Found(value, variable));
    }
    for (String each : List.of(option.command().qualifiedName(".") + "." + key, key)) {
      value = properties.getProperty(each);
      if (value != null) {
        return Optional.of(new Found(value, each + " in " + file));
      }
    }
    return Optional.empty();
  }

  /** Where the default of an option came from, in brackets; nothing where it has none. */
  String source(@Nullable ArgSpec argument) {
    Found found = argument instanceof OptionSpec ? used.get(argument) : null;
    return found == null ? "" : " (from %s)".formatted(found.source);
  }

  /** All defaults that a command was given, in brackets; nothing where there are none. */
  String sources() {
    List<String> all =
        used.entrySet().stream()
            .map(
                each -> "%s from %s".formatted(each.getKey().longestName(), each.getValue().source))
            .sorted()
            .toList();
    return all.isEmpty() ? "" : " (%s)".formatted(String.join(", ", all));
  }

  /**
   * Checks that each key of the file is an option of some command.
   *
   * @throws IllegalArgumentException naming the first that is not
   */
  void check(CommandSpec program) {
    for (String key : properties.stringPropertyNames().stream().sorted().toList()) {
      if (!exists(key, program)) {
        throw new IllegalArgumentException(
            "%s: there is no option --%s%s"
                .formatted(
                    file,
                    key.substring(key.lastIndexOf('.') + 1),
                    key.contains(".") ? " of " + key.substring(0, key.lastIndexOf('.')) : ""));
      }
    }
  }

  private static boolean exists(String key, CommandSpec command) {
    boolean here =
        command.options().stream()
            .map(OptionSpec::longestName)
            .filter(name -> name.startsWith("--"))
            .map(name -> name.substring(2))
            .anyMatch(
                name -> key.equals(name) || key.equals(command.qualifiedName(".") + "." + name));
    return here
        || command.subcommands().values().stream()
            .anyMatch(each -> exists(key, each.getCommandSpec()));
  }

  boolean hasFile() {
    return !properties.isEmpty();
  }
}
