package dev.loupe.attention;

import java.util.Arrays;
import java.util.Comparator;
import java.util.Locale;
import java.util.Optional;
import java.util.function.ToDoubleFunction;

/** What a head may be said to do, where one of its scores is above {@link #THRESHOLD}. */
public enum HeadRole {
  PREVIOUS_TOKEN("previous token", HeadScore.PREVIOUS_TOKEN),
  DUPLICATE_TOKEN("duplicate token", HeadScore.DUPLICATE_TOKEN),
  INDUCTION("induction", HeadScore.INDUCTION),
  FIRST_TOKEN("first token (sink)", HeadScore.FIRST_TOKEN),
  SELF("self", HeadScore.SELF);

  /** Part of a head's attention that names it: a convention of this program's. */
  public static final double THRESHOLD = 0.4;

  private final String label;
  private final HeadScore score;

  HeadRole(String label, HeadScore score) {
    this.label = label;
    this.score = score;
  }

  /** What a head with these scores does most, if it does anything for more than the threshold. */
  public static Optional<HeadRole> of(ToDoubleFunction<HeadScore> scores) {
    return Arrays.stream(values())
        .filter(role -> scores.applyAsDouble(role.score) > THRESHOLD)
        .max(Comparator.comparingDouble(role -> scores.applyAsDouble(role.score)));
  }

  /** In plain words, e.g. {@code first token (sink)}. */
  public String label() {
    return label;
  }

  /** What it goes by. */
  public HeadScore score() {
    return score;
  }

  /** Its name in files, e.g. {@code first_token}. */
  public String key() {
    return name().toLowerCase(Locale.ROOT);
  }
}
