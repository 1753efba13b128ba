package dev.loupe.cli.run;

import dev.loupe.cli.options.QuietOption;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;

/** What to print, and how much to say. */
final class OutputOptions {
  @Option(names = "--json", description = "Print one JSON object per run, on one line.")
  boolean json;

  @Option(
      names = "--logprobs",
      paramLabel = "K",
      description = "With JSON: the K likeliest tokens at each position (default: 0).")
  int logprobs;

  @Mixin QuietOption quiet;

  /**
   * Refuses a wish that nothing would show.
   *
   * @throws IllegalArgumentException if --logprobs is given and no JSON is written
   */
  void check(AttentionOutput attention) {
    if (logprobs < 0) {
      throw new IllegalArgumentException("--logprobs %d: not 0 or more".formatted(logprobs));
    }
    if (logprobs > 0 && !json && !attention.writesJson()) {
      throw new IllegalArgumentException(
          "--logprobs shows in JSON only: add --json or --attention FILE.json");
    }
  }
}
