package dev.loupe.hub;

import java.io.IOException;

/** A model has several files of weights, each of them whole: the caller has to name one. */
public final class SeveralFilesException extends IOException {
  private static final long serialVersionUID = 1L;

  SeveralFilesException(String message) {
    super(message);
  }
}
