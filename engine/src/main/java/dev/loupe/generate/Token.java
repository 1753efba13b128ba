package dev.loupe.generate;

import java.util.List;

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
}
