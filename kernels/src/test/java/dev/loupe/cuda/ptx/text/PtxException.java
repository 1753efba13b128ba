package dev.loupe.cuda.ptx.text;

/** PTX that the interpreter does not know, or that does what the ISA leaves undefined. */
public final class PtxException extends RuntimeException {
  private static final long serialVersionUID = 1;

  public PtxException(String message) {
    super(message);
  }

  public PtxException(String message, Throwable cause) {
    super(message, cause);
  }
}
