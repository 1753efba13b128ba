package dev.loupe.cli.terminal;

import java.io.IOException;

/** An input file that can't be used; the message says which and why. */
public final class InputException extends IOException {
  private static final long serialVersionUID = 1L;

  public InputException(String message) {
    super(message);
  }
}
