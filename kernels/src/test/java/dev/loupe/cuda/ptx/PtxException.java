package dev.loupe.cuda.ptx;

/** PTX that the interpreter does not know, or that does what the ISA leaves undefined. */
public final class PtxException extends RuntimeException {
  private static final long serialVersionUID = 1;

  PtxException(String message) {
    super(message);
  }

  PtxException(String message, Throwable cause) {
    super(message, cause);
  }
}
