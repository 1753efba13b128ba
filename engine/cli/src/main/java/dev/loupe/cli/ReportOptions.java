package dev.loupe.cli;

import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;

/** How a command that prints one report does so. */
final class ReportOptions {
  @Option(names = "--json", description = "Print one JSON object, on one line.")
  boolean json;

  @Mixin QuietOption quiet;
}
