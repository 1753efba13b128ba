package dev.loupe.generate;

import dev.loupe.sampling.TokenDistribution;
import dev.loupe.text.Labels;
import dev.loupe.text.Tokenizer;
import java.util.ArrayList;
import java.util.List;
import java.util.function.IntFunction;

/**
 * One token of a run: what it is, where it stands in the text, and how likely the model found it.
 *
 * @param id vocabulary id
 * @param raw the vocabulary's own spelling, e.g. {@code Ġking}
 * @param label what to show a person, e.g. {@code ·king}; see {@link dev.loupe.text.Labels}
 * @param bytes the bytes it stands for, in upper-case hex, e.g. {@code 206B696E67}
 * @param charStart first code point of the run's text (prompt and generated) that it touches
 * @param charEnd one past the last code point that it touches
 * @param special a control token such as {@code <|endoftext|>}, which is not part of the text
 * @param generated false for the prompt's tokens
 * @param logprob natural log of its probability given its predecessors, from the model's own
 *     distribution (before temperature and filters); NaN where there is none (the first token, or
 *     not asked for)
 * @param rank how many tokens were more likely; -1 where there is no logprob
 * @param top the most likely tokens at its place, best first; empty unless asked for
 */
public record Token(
    int id,
    String raw,
    String label,
    String bytes,
    int charStart,
    int charEnd,
    boolean special,
    boolean generated,
    double logprob,
    int rank,
    List<Candidate> top) {

  /** A token that could have stood in this place, with the natural log of its probability. */
  public record Candidate(int id, String label, double logprob) {}

  public Token {
    top = List.copyOf(top);
  }

  /** The tokens of a text that is only read, without logprobs. */
  public static List<Token> of(Tokenizer tokenizer, Prompt prompt, int[] ids) {
    return new Sample(tokenizer, GenerateRequest.of(prompt), ids).tokens();
  }

  /**
   * Likewise, with logprobs.
   *
   * @param prompt whose tokens they are
   * @param top how many likely tokens are named at each place
   * @param logits gives the logits [V] after the token at a place
   */
  public static List<Token> of(
      Tokenizer tokenizer, Prompt prompt, int[] ids, int top, IntFunction<float[]> logits) {
    Sample sample = new Sample(tokenizer, GenerateRequest.of(prompt).logprobs(top), ids);
    sample.note(ids[0], null); // nothing came before it
    for (int i = 1; i < ids.length; i++) {
      sample.note(ids[i], logits.apply(i - 1));
    }
    return sample.tokens();
  }

  /** Likely tokens as they are shown. */
  public static List<Candidate> candidates(Tokenizer tokenizer, List<TokenDistribution.Entry> top) {
    List<Candidate> candidates = new ArrayList<>();
    for (TokenDistribution.Entry entry : top) {
      candidates.add(
          new Candidate(entry.id(), Labels.label(tokenizer, entry.id()), entry.logprob()));
    }
    return candidates;
  }
}
