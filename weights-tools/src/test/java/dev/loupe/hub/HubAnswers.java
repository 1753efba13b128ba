package dev.loupe.hub;

import java.io.IOException;

/** For tests of other packages: what a hub's list of files is taken for. */
public final class HubAnswers {
  private HubAnswers() {}

  /** Reads one as a pull does. */
  public static void read(byte[] json) throws IOException {
    try {
      var _ = Hub.listing(json);
    } catch (IllegalArgumentException e) { // as Hub.list
      throw new IOException(e.getMessage(), e);
    }
  }
}
