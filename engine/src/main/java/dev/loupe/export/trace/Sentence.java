package dev.loupe.export.trace;

/**
 * What a trace says, with the number that it stands on.
 *
 * @param basis where the number is from
 * @param text in words; has the number
 * @param number the number, not rounded
 */
public record Sentence(Basis basis, String text, double number) {
  /** Where a number is from. */
  public enum Basis {
    /** What the model makes of the text as it is. */
    READING("reading"),
    /** What an intervention changed: the only basis of a cause. */
    INTERVENTION("intervention"),
    /** What a head attends to, which says nothing of what comes of it. */
    ATTENTION("attention");

    private final String label;

    Basis(String label) {
      this.label = label;
    }

    /** Its name in JSON. */
    public String label() {
      return label;
    }
  }

  public Sentence {
    if (text.isBlank() || !Double.isFinite(number)) {
      throw new IllegalArgumentException("a sentence on %s: %s".formatted(number, text));
    }
  }
}
