package dev.loupe.interpret.trace;

/** By what one part of a model reads another. */
public enum Via {
  /** The queries of a head. */
  QUERY("q"),
  /** Its keys. */
  KEY("k"),
  /** Its values. */
  VALUE("v"),
  /** What an MLP reads. */
  MLP("mlp"),
  /** The last layer norm and the head of the model: straight to the logits. */
  LOGIT("logit");

  private final String label;

  Via(String label) {
    this.label = label;
  }

  /** Its name in JSON. */
  public String label() {
    return label;
  }
}
