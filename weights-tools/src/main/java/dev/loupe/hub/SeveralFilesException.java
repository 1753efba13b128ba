package dev.loupe.hub;

import java.io.IOException;

/** A model of which there are several files, each a whole one: the caller has to name one. */
public final class SeveralFilesException extends IOException {
  private static final long serialVersionUID = 1L;

  SeveralFilesException(String message) {
    super(message);
  }
}
