package dev.loupe.cli.options;

import dev.loupe.cuda.driver.LibraryCache;
import dev.loupe.hub.ModelCache;
import dev.loupe.hub.ModelName;
import dev.loupe.weights.AdapterFolder;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.io.CheckpointException;
import java.nio.file.Path;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * Models by name: what {@code loupe weights pull} brought, and what Hugging Face's programs did.
 */
public final class NamedModels {
  private NamedModels() {}

  /**
   * A model on this machine.
   *
   * @param source its folder or file
   * @param adapter the folder of the LoRA adapter that belongs to it
   */
  public record Found(Path source, Optional<Path> adapter) {
    /** Opens it with its adapter. */
    public Checkpoint open(@Nullable Activation activation) throws CheckpointException {
      return Checkpoint.open(source, activation, adapter.orElse(null));
    }
  }

  /**
   * A model, likewise by path or name; of an adapter's folder, the base that the adapter names.
   *
   * @param adapter the adapter to merge, by path or name; null for what {@code given} says
   */
  public static Found find(Path given, @Nullable Path adapter) throws CheckpointException {
    Path source = find(given);
    if (adapter != null) {
      return new Found(source, Optional.of(find(adapter)));
    }
    if (!AdapterFolder.isAdapter(source)) {
      return new Found(source, Optional.empty());
    }
    Optional<Path> base = AdapterFolder.basePath(source);
    return new Found(
        base.isPresent() ? base.get() : cached(AdapterFolder.baseName(source), source),
        Optional.of(source));
  }

  private static Path cached(String base, Path adapter) throws CheckpointException {
    return ModelName.find(base)
        .flatMap(name -> cache().find(name))
        .orElseThrow(
            () ->
                new CheckpointException(
                    "%s is an adapter of %s, which is not on this machine; run loupe weights pull %s, or give the base with -m and --adapter %s"
                        .formatted(adapter, base, base, adapter)));
  }

  public static ModelCache cache() {
    String home = System.getProperty("user.home", "");
    Path own = LibraryCache.folder(System::getenv, System.getProperty("os.name", ""), home);
    return new ModelCache(own, System::getenv, home);
  }

  /**
   * Where a model lies that was given as a path or, if there is nothing of that path, as a name.
   *
   * @throws CheckpointException if it might be the name of a model that isn't on this machine
   */
  public static Path find(Path given) throws CheckpointException {
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
