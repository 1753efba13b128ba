package dev.loupe.export;

/** How far along the palette a weight in 0..1 lies. */
public enum ColourScale {
  /** Spreads small weights out: nearly all of them are under 0.05. */
  SQUARE_ROOT("square root of attention weight"),
  /** Twice the weight is twice as far. */
  LINEAR("attention weight");

  private final String legend;

  ColourScale(String legend) {
    this.legend = legend;
  }

  /** What the colour shows, for a legend. */
  public String legend() {
    return legend;
  }

  /** Position on the palette, 0..1; weights outside 0..1, and NaN, go to the nearer end or 0. */
  public double position(double weight) {
    double inside = weight > 0 ? Math.min(weight, 1) : 0; // NaN is not > 0
    return this == SQUARE_ROOT ? Math.sqrt(inside) : inside;
  }
}
