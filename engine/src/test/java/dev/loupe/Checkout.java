package dev.loupe;

import java.nio.file.Files;
import java.nio.file.Path;

/** Where the tests find the rest of the checkout: they run in the folder of their module. */
public final class Checkout {
  /** The top level, relative to the module. */
  public static final Path ROOT = root();

  public static final Path TEST_DATA = ROOT.resolve("test-data");

  private Checkout() {}

  private static Path root() {
    Path parent = Path.of("..");
    for (int up = 0; up < 3; up++, parent = parent.resolve("..")) {
      if (Files.isDirectory(parent.resolve("test-data"))) {
        return parent;
      }
    }
    throw new IllegalStateException("no folder test-data above " + Path.of("").toAbsolutePath());
  }
}
