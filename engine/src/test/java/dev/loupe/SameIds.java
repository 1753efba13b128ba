package dev.loupe;

import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Token;
import dev.loupe.model.Golden;
import dev.loupe.ops.Precision;
import dev.loupe.sampling.Sampling;
import java.util.List;
import java.util.Locale;

/**
 * Whether the card writes the text that the CPU writes: some tokens of the demo model, greedily, in
 * each type of weights. One line of JSON for each; in f32 a difference fails the program, unless
 * the CPU's two best tokens were so close there that rounding decides between them.
 */
final class SameIds {
  /**
   * Log-probabilities of the two backends differ by up to 2e-4 in f32, each of the two best by as
   * much; the rest is room for the tokens before, whose keys differ as little.
   */
  static final double NEAR_TIE = 1e-3;

  private SameIds() {}

  public static void main(String[] args) throws Exception {
    int tokens = Integer.parseInt(args[0]);
    boolean same = true;
    for (Precision precision : Precision.values()) {
      Generation cpu = write(Backend.CPU, precision, tokens);
      Generation card = write(Backend.CUDA, precision, tokens);
      int parted = firstDifference(cpu.tokens(), card.tokens());
      boolean right = parted < 0 || isNearTie(cpu.tokens(), card.tokens(), parted);
      String found =
          parted < 0
              ? "the same %d tokens".formatted(tokens)
              : "the same %d tokens, then %s"
                  .formatted(
                      parted - cpu.promptLength(),
                      right ? "a tie that rounding decides" : "another token");
      System.out.printf(
          "{\"ids\": \"%s\", \"found\": \"%s\"}%n",
          precision.name().toLowerCase(Locale.ROOT), found);
      same &= right || precision != Precision.F32; // activations in f16 round far more than a tie
    }
    System.exit(same ? 0 : 1);
  }

  private static Generation write(Backend backend, Precision precision, int tokens)
      throws Exception {
    Options options = Options.defaults().backend(backend).precision(precision);
    try (Loupe loupe = Loupe.open(Golden.DEMO_MODEL, options)) {
      GenerateRequest request =
          GenerateRequest.text("ROMEO:").tokens(tokens).sampling(Sampling.greedy());
      return loupe.run(request.logprobs(2)).getFirst();
    }
  }

  /** Index of the first token that is not the same; -1 if there is none. */
  static int firstDifference(List<Token> a, List<Token> b) {
    for (int i = 0; i < Math.min(a.size(), b.size()); i++) {
      if (a.get(i).id() != b.get(i).id()) {
        return i;
      }
    }
    return a.size() == b.size() ? -1 : Math.min(a.size(), b.size());
  }

  /** True if both lists have a token at {@code i}, and b's was within a tie of a's best there. */
  static boolean isNearTie(List<Token> a, List<Token> b, int i) {
    if (i >= Math.min(a.size(), b.size())) {
      return false;
    }
    double best = a.get(i).top().getFirst().logprob();
    return a.get(i).top().stream()
        .anyMatch(c -> c.id() == b.get(i).id() && best - c.logprob() <= NEAR_TIE);
  }
}
