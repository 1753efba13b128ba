package dev.loupe.cli;

import java.io.IOException;

/** An input file that can't be used; the message says which and why. */
final class InputException extends IOException {
  private static final long serialVersionUID = 1L;

  InputException(String message) {
    super(message);
  }
}
