package dev.loupe.generate;

import dev.loupe.attention.AttentionMaps;
import dev.loupe.attention.AttentionRollout;
import dev.loupe.attention.AttentionStatistics;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.model.ModelInfo;
import dev.loupe.sampling.Sampling;
import java.util.List;
import java.util.Optional;

/**
 * One finished run: the tokens read and written, and the attention that was asked for.
 *
 * @param model where it came from
 * @param sampling how tokens were chosen
 * @param sample number of this run among those of one request
 * @param text the generated text, cut before a stop string; without the prompt
 * @param promptLength how many of {@code tokens} are the prompt's
 * @param tokens prompt and generated tokens, in order
 * @param finish why it ended
 * @param cropped how many tokens at the start had slid out of the context by the end; 0 unless
 *     sliding was allowed
 * @param maps attention probabilities of the tokens, if any were asked for
 * @param scores pre-softmax scores of the same layers and heads, if asked for
 * @param statistics of the rows of the same layers and heads, if asked for
 * @param headStatistics of the same layers and heads, if asked for
 * @param rollout of all layers and heads, if asked for
 * @param timing where the time went
 */
public record Generation(
    ModelInfo model,
    Sampling sampling,
    int sample,
    String text,
    int promptLength,
    List<Token> tokens,
    Finish finish,
    int cropped,
    Optional<AttentionMaps> maps,
    Optional<AttentionMaps> scores,
    Optional<AttentionStatistics> statistics,
    Optional<HeadStatistics> headStatistics,
    Optional<AttentionRollout> rollout,
    Timing timing) {

  /** Why a run ended. */
  public enum Finish {
    /** The number of tokens asked for was reached. */
    LENGTH,
    /** The model wrote an end-of-text token, or one that the request ends at. */
    EOS,
    /** A stop string appeared. */
    STOP,
    /** The caller or an interrupt ended it early; what was made so far is here. */
    INTERRUPTED,
    /** The GPU failed; what was made so far is here. */
    ERROR
  }

  /** Milliseconds and token counts of reading the prompt and of writing. */
  public record Timing(double prefillMs, int prefillTokens, double decodeMs, int decodeTokens) {}

  public Generation {
    tokens = List.copyOf(tokens);
  }

  /**
   * The attention maps.
   *
   * @throws IllegalStateException if the run was started without an attention selection
   */
  public AttentionMaps attention() {
    return maps.orElseThrow(
        () -> new IllegalStateException("this run kept no maps: ask for a selection of them"));
  }
}
