package dev.loupe.cli.options;

import picocli.CommandLine.Option;

/** How much a command says beside its results. */
public final class QuietOption {
  @Option(
      names = {"-q", "--quiet"},
      description = "Nothing on standard error but errors.")
  public boolean set;
}
