package dev.loupe.cli.options;

import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;

/** The folder that Loupe lies in, for the files that come with it. */
public final class Home {
  private Home() {}

  /** The bundled demo model, a small GPT-2 trained on Shakespeare. */
  public static Optional<Path> demoModel() {
    return find("test-data/shakespeare");
  }

  /** GPT-2's own tokenizer. */
  public static Optional<Path> gpt2Tokenizer() {
    return find("test-data/gpt2");
  }

  /** Set by the launcher; otherwise the nearest folder above this program that has the file. */
  private static Optional<Path> find(String name) {
    String home = System.getProperty("loupe.home");
    if (home != null) {
      return existing(Path.of(home).resolve(name));
    }
    try {
      Path code = Path.of(Home.class.getProtectionDomain().getCodeSource().getLocation().toURI());
      for (Path folder = code.getParent(); folder != null; folder = folder.getParent()) {
        Optional<Path> found = existing(folder.resolve(name));
        if (found.isPresent()) {
          return found;
        }
      }
    } catch (URISyntaxException e) {
      // not started from a file; then nothing comes with it
    }
    return Optional.empty();
  }

  private static Optional<Path> existing(Path path) {
    return Files.exists(path) ? Optional.of(path) : Optional.empty();
  }
}
