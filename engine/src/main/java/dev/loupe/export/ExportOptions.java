package dev.loupe.export;

import java.util.Optional;

/**
 * How maps are written.
 *
 * @param f16Maps npz: {@code attention} as IEEE half floats, half the size; three digits survive,
 *     and weights under 3e-8 become 0
 * @param colour png and html: which colour a weight has; the page can switch
 * @param details json: how the run was made
 */
public record ExportOptions(boolean f16Maps, ColourScale colour, Optional<RunDetails> details) {

  /** Full precision, square-root colour, nothing known about how the run was made. */
  public static final ExportOptions DEFAULTS =
      new ExportOptions(false, ColourScale.SQUARE_ROOT, Optional.empty());
}
