package dev.loupe.hub;

import dev.loupe.weights.io.InputFile;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.function.UnaryOperator;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * Where models lie that were fetched by name: those that Loupe pulled, and those that Hugging
 * Face's own programs left behind, which are only read.
 *
 * <pre>
 * OWN/models/openai-community/gpt2/config.json               ...gpt2@REVISION/ for another revision
 * THEIRS/models--openai-community--gpt2/refs/main            a commit
 * THEIRS/models--openai-community--gpt2/snapshots/COMMIT/config.json
 * </pre>
 *
 * <p>Source: huggingface_hub, "Understand caching", and its environment variables.
 */
public final class ModelCache {
  private static final int LONGEST_COMMIT = 64;

  private final @Nullable Path own;
  private final @Nullable Path theirs;

  /**
   * @param own Loupe's cache folder, null where there is none
   * @param env gives the value of an environment variable, or null
   * @param home the user's home
   */
  public ModelCache(@Nullable Path own, UnaryOperator<@Nullable String> env, String home) {
    this.own = own;
    this.theirs = theirs(env, home);
  }

  private static @Nullable Path theirs(UnaryOperator<@Nullable String> env, String home) {
    for (String variable : new String[] {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
      String chosen = env.apply(variable);
      if (chosen != null && !chosen.isEmpty()) {
        return HubSettings.path(chosen, home);
      }
    }
    Path folder = HubSettings.home(env, home);
    return folder == null ? null : folder.resolve("hub");
  }

  /**
   * The folder that {@code name} is pulled to unless another one is given.
   *
   * @throws IOException if the environment names no folder for such things
   */
  public Path folder(ModelName name) throws IOException {
    if (own == null) {
      throw new IOException(
          "no folder for %s: give one after the name, or set LOUPE_CACHE".formatted(name));
    }
    return own.resolve("models").resolve(name.toString().replace("/", slash(name)));
  }

  /** A revision may have slashes, {@code refs/pr/1}; then the folder is one name all the same. */
  private static String slash(ModelName name) {
    return name.revision().contains("/") ? "--" : "/";
  }

  /** The folder that holds this model whole, if there is one. */
  public Optional<Path> find(ModelName name) {
    try {
      if (own != null && isModel(folder(name))) {
        return Optional.of(folder(name));
      }
      return theirs == null ? Optional.empty() : snapshot(theirs, name);
    } catch (IOException | InvalidPathException e) {
      return Optional.empty(); // what can't be looked into isn't there
    }
  }

  private static Optional<Path> snapshot(Path cache, ModelName name) throws IOException {
    Path model = cache.resolve("models--" + name.repository().replace("/", "--"));
    Path ref = model.resolve("refs").resolve(name.revision());
    String commit = name.revision();
    if (Files.isRegularFile(ref)) {
      commit = InputFile.read(ref, LONGEST_COMMIT, "a commit").text().strip();
    }
    if (!commit.matches("[0-9A-Za-z]{1,64}")) {
      return Optional.empty();
    }
    Path snapshot = model.resolve("snapshots").resolve(commit);
    return isModel(snapshot) ? Optional.of(snapshot) : Optional.empty();
  }

  /**
   * Their cache may hold a part of a model: a tokenizer alone, say. A GGUF file is a whole one, and
   * an adapter is one with its base.
   */
  private static boolean isModel(Path folder) throws IOException {
    return holds(folder, Pull.CONFIG, Pull.WEIGHTS)
        || holds(folder, Pull.ADAPTER_CONFIG, Pull.ADAPTERS)
        || holdsGguf(folder);
  }

  private static boolean holds(Path folder, String config, List<String> weights) {
    return Files.exists(folder.resolve(config))
        && weights.stream().anyMatch(file -> Files.exists(folder.resolve(file)));
  }

  private static boolean holdsGguf(Path folder) throws IOException {
    if (!Files.isDirectory(folder)) {
      return false;
    }
    try (Stream<Path> files = Files.list(folder)) {
      // a link whose file was deleted is none
      return files.anyMatch(file -> file.toString().endsWith(Pull.GGUF) && Files.exists(file));
    }
  }
}
