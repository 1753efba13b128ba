package dev.loupe.interpret.trace;

import java.util.HashMap;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** What takes the place of every part's output. */
final class Replacements {
  private final Ablation ablation;
  private final Recording clean;
  private final @Nullable Recording other;
  private final Map<Part, float[]> known = new HashMap<>();

  /**
   * @param other the second text, for {@link Ablation#PATCH}
   */
  Replacements(Ablation ablation, Recording clean, @Nullable Recording other) {
    this.ablation = ablation;
    this.clean = clean;
    this.other = other;
    if (ablation == Ablation.PATCH && other == null) {
      throw new IllegalArgumentException("there is no second text to patch from");
    }
  }

  /** [T, D] of a head, [T, C] of an MLP. */
  float[] of(Part part) {
    return known.computeIfAbsent(
        part,
        _ ->
            switch (ablation) {
              case ZERO -> new float[clean.tokens * clean.columns(part)];
              case MEAN -> clean.mean(part);
              case PATCH -> Objects.requireNonNull(other).output(part);
            });
  }
}
