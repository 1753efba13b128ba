package dev.loupe.weights;

import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.StrictJson;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;

/** The folder of a LoRA adapter as PEFT writes it, and the base model that it names. */
public final class AdapterFolder {
  private AdapterFolder() {}

  /**
   * Whether this is the folder of a LoRA adapter, which needs a base.
   *
   * @throws CheckpointException if a model's weights are there as well, so that the user has to say
   *     what to open
   */
  public static boolean isAdapter(Path source) throws CheckpointException {
    if (!Files.isDirectory(source) || !Adapter.isIn(source)) {
      return false;
    }
    for (String name : Formats.fixedNames()) {
      if (Files.isRegularFile(source.resolve(name))) {
        throw new CheckpointException(
            "%s holds a model (%s) and an adapter: give the one as the model and the other as its adapter"
                .formatted(source, name));
      }
    }
    return true;
  }

  /**
   * What an adapter calls its base: a path, or a model's name with or without {@code @REVISION}.
   *
   * @param adapter its folder
   * @throws CheckpointException if its config can't be read, or names no base
   */
  public static String baseName(Path adapter) throws CheckpointException {
    return AdapterConfig.read(adapter.resolve(AdapterConfig.FILE_NAME))
        .base()
        .orElseThrow(
            () ->
                new CheckpointException(
                    "%s names no base_model_name_or_path: give the base as the model, and %s as its adapter"
                        .formatted(adapter.resolve(AdapterConfig.FILE_NAME), adapter)));
  }

  /**
   * The base of an adapter where it is named by its path, as it is or from the adapter's folder.
   *
   * @param adapter its folder
   * @return empty if the base is named otherwise, or nothing lies there
   * @throws CheckpointException if its config can't be read
   */
  public static Optional<Path> basePath(Path adapter) throws CheckpointException {
    Optional<String> base = AdapterConfig.read(adapter.resolve(AdapterConfig.FILE_NAME)).basePath();
    try {
      if (base.isPresent()) {
        for (Path path : List.of(Path.of(base.get()), adapter.resolve(base.get()))) {
          if (Checkpoint.exists(path) && !isAdapter(path)) {
            return Optional.of(path);
          }
        }
      }
    } catch (InvalidPathException e) {
      return Optional.empty(); // a name that can't be a path
    }
    return Optional.empty();
  }

  /** The base, which has to be on this machine. */
  static Path base(Path adapter) throws CheckpointException {
    String name = baseName(adapter);
    return basePath(adapter)
        .orElseThrow(
            () ->
                new CheckpointException(
                    "%s is an adapter of %s, which is not here: give that as the model, and %s as its adapter"
                        .formatted(adapter, StrictJson.shown(name), adapter)));
  }
}
