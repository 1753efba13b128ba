package dev.loupe.cli.run;

import dev.loupe.sampling.Sampling;
import java.util.concurrent.ThreadLocalRandom;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Option;

/** How to choose tokens. */
final class SamplingOptions {
  @Option(names = "--greedy", description = "Always the most likely token.")
  boolean greedy;

  @Option(
      names = "--temperature",
      paramLabel = "T",
      description = "Below 1 is safer, above 1 wilder (default: 0.8).")
  double temperature = 0.8;

  @Option(
      names = "--top-k",
      paramLabel = "K",
      description = "Only the K likeliest; 0 is all (default: 40).")
  int topK = 40;

  @Option(
      names = "--top-p",
      paramLabel = "P",
      description = "Only the likeliest up to probability P (default: 0.95).")
  double topP = 0.95;

  @Option(
      names = "--min-p",
      paramLabel = "P",
      description = "Only tokens at least P times as likely as the first (default: 0).")
  double minP;

  @Option(
      names = "--repetition-penalty",
      paramLabel = "R",
      description = "Above 1 discourages tokens seen before (default: 1).")
  double repetitionPenalty = 1;

  @Option(
      names = "--presence-penalty",
      paramLabel = "P",
      description = "Subtracted from the logits of tokens that the text has, -2 to 2 (default: 0).")
  double presencePenalty;

  @Option(
      names = "--frequency-penalty",
      paramLabel = "P",
      description = "Likewise, subtracted once per occurrence (default: 0).")
  double frequencyPenalty;

  @Option(
      names = "--seed",
      paramLabel = "S",
      description = "The same seed gives the same text (default: a new one each time).")
  @Nullable Long seed;

  Sampling sampling() {
    long drawn = seed == null ? ThreadLocalRandom.current().nextLong(1L << 32) : seed;
    return new Sampling(
        greedy ? 0 : temperature,
        topK,
        topP,
        minP,
        repetitionPenalty,
        presencePenalty,
        frequencyPenalty,
        drawn);
  }
}
