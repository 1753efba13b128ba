package dev.loupe.generate;

/** A prompt, or it and the tokens to write, are longer than the context, which may not slide. */
public final class ContextLengthException extends IllegalArgumentException {
  private static final long serialVersionUID = 1L;

  private final int prompt;
  private final int context;

  ContextLengthException(String message, int prompt, int context) {
    super(message);
    this.prompt = prompt;
    this.context = context;
  }

  /** Tokens of the prompt. */
  public int prompt() {
    return prompt;
  }

  /** Tokens that the model reads. */
  public int context() {
    return context;
  }
}
