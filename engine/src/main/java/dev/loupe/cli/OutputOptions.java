package dev.loupe.cli;

import picocli.CommandLine.Option;

/** How much to say. */
final class OutputOptions {
  @Option(names = "--json", description = "One JSON object a run on standard output.")
  boolean json;

  @Option(
      names = {"-q", "--quiet"},
      description = "Nothing on standard error but errors.")
  boolean quiet;
}
