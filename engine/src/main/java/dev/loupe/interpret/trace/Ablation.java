package dev.loupe.interpret.trace;

/** What takes the place of a part's output. */
public enum Ablation {
  /** Nothing: zero ablation. */
  ZERO("zero"),
  /** Its mean over the positions of the text: mean ablation (Wang et al., arXiv 2211.00593). */
  MEAN("mean"),
  /** What it is at the same position of a second text: activation patching. */
  PATCH("patched");

  private final String label;

  Ablation(String label) {
    this.label = label;
  }

  /** Its name in JSON. */
  public String label() {
    return label;
  }
}
