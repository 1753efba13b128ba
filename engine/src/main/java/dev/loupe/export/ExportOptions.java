package dev.loupe.export;

/**
 * How maps are written.
 *
 * @param f16Maps npz: {@code attention} as IEEE half floats, half the size; three digits survive,
 *     and weights under 3e-8 become 0
 * @param colour png and html: which colour a weight has; the page can switch
 */
public record ExportOptions(boolean f16Maps, ColourScale colour) {

  /** Full precision, square-root colour. */
  public static final ExportOptions DEFAULTS = new ExportOptions(false, ColourScale.SQUARE_ROOT);
}
