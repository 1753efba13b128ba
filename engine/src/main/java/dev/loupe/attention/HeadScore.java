package dev.loupe.attention;

import java.util.Locale;

/**
 * What is measured of a head over a text: a mean over queries of what their rows read.
 *
 * <p>Below, P[i, j] is what query i read of key j; i counts from 0, and key 0 is the first token
 * that the model still reads: that of the text, or of what is left of it once a context slid. A
 * mean is over the queries that the score is defined for, and there is none (NaN) without one.
 * {@code x} are token ids. Scores are parts of attention, 0 to 1, but for the unit that is named.
 *
 * <p>Two scores are defined twice. In any text they go by which tokens are equal; in repeated
 * random tokens, [BOS] a b c ... a b c ..., L of them each time, they are the means of diagonals of
 * P that TransformerLens takes (its Exploratory Analysis and Main demos, and ARENA's exercises).
 * Such a diagonal holds a query or two more than repeat anything, so that a perfect head gets L /
 * (L + 1) for duplicates and L / (L + 2) for induction.
 */
public enum HeadScore {
  /**
   * -sum over j of P[i, j] log P[i, j], mean over all queries; nats (Vig and Belinkov, "Analyzing
   * the Structure of Attention in a Transformer Language Model", 2019).
   */
  ENTROPY,

  /**
   * Entropy over that of a row that reads all its n keys alike, log n; queries of 2 keys or more.
   */
  NORMALISED_ENTROPY,

  /** sum over j of P[i, j] (i - j), mean over all queries; tokens (Vig and Belinkov, likewise). */
  MEAN_DISTANCE,

  /**
   * P[i, 0], queries i &gt;= 1: how far the first token is a sink (Xiao et al., "Efficient
   * Streaming Language Models with Attention Sinks", 2023).
   */
  FIRST_TOKEN,

  /** P[i, i], queries i &gt;= 1. */
  SELF,

  /**
   * P[i, i - 1], queries i &gt;= 1: the diagonal -1 (Elhage et al., "A Mathematical Framework for
   * Transformer Circuits", 2021).
   */
  PREVIOUS_TOKEN,

  /**
   * In a text: sum of P[i, j] over the j &lt; i with x[j] = x[i], queries that have one, which are
   * the pairs of TransformerLens' duplicate_token_head. In repeated random tokens: the diagonal -L,
   * P[i, i - L].
   */
  DUPLICATE_TOKEN,

  /**
   * In a text: sum of P[i, j + 1] over the j &lt; i with x[j] = x[i], queries that have one, which
   * are the pairs of TransformerLens' induction_head; it divides by all queries, here it is by
   * those that could. In repeated random tokens: the diagonal -(L - 1), P[i, i - L + 1] (Olsson et
   * al., "In-context Learning and Induction Heads", 2022: prefix matching).
   */
  INDUCTION,

  /**
   * sum over j of |P[i, j] v[j] W_O|, mean over all queries: the length of what the head adds to
   * the residual stream, were all of it to point one way (Kobayashi et al., "Attention is Not Only
   * a Weight", 2020). v[j] [D] is the head's value of token j, W_O [D, C] its rows of
   * h.N.attn.c_proj.weight; in units of the residual stream.
   */
  WEIGHTED_NORM,

  /**
   * |P[i, 0] v[0] W_O| over the sum of {@link #WEIGHTED_NORM}, queries i &gt;= 1: what is left of a
   * sink once values count (Kobayashi et al., likewise).
   */
  FIRST_TOKEN_BY_NORM;

  /** Its name in files, e.g. {@code mean_distance}. */
  public String key() {
    return name().toLowerCase(Locale.ROOT);
  }

  /** Whether it is there only where norms of values were asked for. */
  public boolean needsValueNorms() {
    return this == WEIGHTED_NORM || this == FIRST_TOKEN_BY_NORM;
  }
}
