package dev.loupe.cli.options;

import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;

/** How a command that prints one report does so. */
public final class ReportOptions {
  @Option(names = "--json", description = "Print one JSON object, on one line.")
  public boolean json;

  @Mixin public QuietOption quiet;
}
