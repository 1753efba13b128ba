package dev.loupe.cli.run;

import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Option;

/** Which prediction of a text a command is about. */
final class TokenOptions {
  @Option(
      names = "--at",
      paramLabel = "N",
      description = "The token after which the model speaks, from 0 (default: the last).")
  @Nullable Integer at;

  @Option(
      names = "--target",
      paramLabel = "ID",
      description =
          "The token in question (default: the one that follows in the text, or the likeliest).")
  @Nullable Integer target;

  /**
   * Refuses what is no position and no id.
   *
   * @throws IllegalArgumentException naming the option
   */
  void check() {
    requireNotNegative("--at", at);
    requireNotNegative("--target", target);
  }

  /** Position of the token, from 0; negative for the last. */
  int at() {
    return at == null ? -1 : at;
  }

  /** Its id; negative for the one that follows, or the likeliest. */
  int target() {
    return target == null ? -1 : target;
  }

  private static void requireNotNegative(String option, @Nullable Integer value) {
    if (value != null && value < 0) {
      throw new IllegalArgumentException("%s %d: not 0 or more".formatted(option, value));
    }
  }
}
