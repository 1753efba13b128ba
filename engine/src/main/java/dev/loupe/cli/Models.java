package dev.loupe.cli;

import dev.loupe.hub.ModelCache;
import dev.loupe.hub.ModelName;
import dev.loupe.kernels.LibraryCache;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.CheckpointException;
import java.nio.file.Path;
import java.util.Optional;

/**
 * Models by name: what {@code loupe weights pull} brought, and what Hugging Face's programs did.
 */
final class Models {
  private Models() {}

  static ModelCache cache() {
    String home = System.getProperty("user.home", "");
    Path own = LibraryCache.folder(System::getenv, System.getProperty("os.name", ""), home);
    return new ModelCache(own, System::getenv, home);
  }

  /**
   * Where a model lies that was given as a path or, if there is nothing of that path, as a name.
   *
   * @throws CheckpointException if it might be the name of a model that isn't on this machine
   */
  static Path find(Path given) throws CheckpointException {
    Optional<ModelName> name = ModelName.find(given.toString().replace('\\', '/'));
    if (Checkpoint.exists(given) || name.isEmpty()) {
      return given;
    }
    return cache()
        .find(name.get())
        .orElseThrow(
            () ->
                new CheckpointException(
                    "%s does not exist, and no model of that name was pulled; give a folder or a weights file, or run loupe weights pull %s"
                        .formatted(given, name.get())));
  }
}
