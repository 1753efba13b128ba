package dev.loupe.cli;

import picocli.CommandLine.Option;

/** How much a command says beside its results. */
final class QuietOption {
  @Option(
      names = {"-q", "--quiet"},
      description = "Nothing on standard error but errors.")
  boolean set;
}
