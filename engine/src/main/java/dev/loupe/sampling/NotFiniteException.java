package dev.loupe.sampling;

/** A model computed NaN or infinity, from which no token can be chosen. */
public final class NotFiniteException extends ArithmeticException {
  private static final long serialVersionUID = 1L;

  public NotFiniteException(String message) {
    super(message);
  }
}
