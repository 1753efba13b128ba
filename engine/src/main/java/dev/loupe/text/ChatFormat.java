package dev.loupe.text;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.loupe.text.files.TokenizerSettings;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * What a model's files say of conversations.
 *
 * @param template in Jinja, as it stands in a file
 * @param source the file
 * @param tokens special tokens by the names that templates have for them, such as {@code bos_token}
 *     and {@code eos_token}
 */
public record ChatFormat(String template, String source, Map<String, String> tokens) {
  private static final String TEMPLATE = "chat_template";
  private static final String FILE = "chat_template.jinja";
  private static final String DEFAULT = "default";
  private static final int MOST_BYTES = 1 << 20;

  public ChatFormat {
    tokens = Map.copyOf(tokens);
  }

  /**
   * That of the model in {@code source}, a folder or a file in one; its chat_template.jinja, or
   * chat_template of its tokenizer_config.json. Of several that have names the one named default.
   *
   * @throws CheckpointException if there is one and it can't be read
   */
  public static Optional<ChatFormat> of(Path source) throws CheckpointException {
    Path folder = folder(source);
    Path file = folder.resolve(FILE);
    if (Files.exists(file)) {
      return Optional.of(from(file, source));
    }
    Path config = folder.resolve(TokenizerSettings.FILE_NAME);
    String template = template(TokenizerSettings.object(config).get(TEMPLATE), config);
    return template == null
        ? Optional.empty()
        : Optional.of(new ChatFormat(template, config.toString(), tokens(folder)));
  }

  /**
   * The template in {@code file}, for the model in {@code source}.
   *
   * @throws CheckpointException if it can't be read
   */
  public static ChatFormat from(Path file, Path source) throws CheckpointException {
    String template = InputFile.read(file, MOST_BYTES, "a chat template").text();
    return new ChatFormat(template, file.toString(), tokens(folder(source)));
  }

  /** That which the file of the weights carries, as a GGUF file may. */
  public static Optional<ChatFormat> carried(Checkpoint checkpoint) {
    return checkpoint
        .vocabulary()
        .flatMap(
            vocabulary ->
                vocabulary
                    .chatTemplate()
                    .map(
                        template ->
                            new ChatFormat(
                                template,
                                checkpoint.source().toString(),
                                tokens(checkpoint.config(), vocabulary.tokens()))));
  }

  private static Map<String, String> tokens(Gpt2Config config, List<Vocabulary.Token> spelled) {
    Map<String, String> tokens = new HashMap<>();
    put(tokens, "bos_token", config.bosTokenId(), spelled);
    if (!config.eosTokenIds().isEmpty()) {
      put(tokens, "eos_token", config.eosTokenIds().getFirst(), spelled);
    }
    return tokens;
  }

  private static void put(
      Map<String, String> tokens, String role, int id, List<Vocabulary.Token> spelled) {
    if (id >= 0 && id < spelled.size()) {
      tokens.put(role, spelled.get(id).spelling());
    }
  }

  private static Path folder(Path source) {
    Path parent = source.toAbsolutePath().getParent();
    return Files.isDirectory(source) || parent == null ? source : parent;
  }

  private static @Nullable String template(@Nullable JsonElement value, Path file)
      throws CheckpointException {
    if (value == null || value.isJsonNull()) {
      return null;
    }
    if (isText(value)) {
      return value.getAsString();
    }
    if (value.isJsonArray()) {
      for (JsonElement each : value.getAsJsonArray()) {
        if (each instanceof JsonObject one
            && isText(one.get("name"))
            && one.get("name").getAsString().equals(DEFAULT)
            && isText(one.get("template"))) {
          return one.get("template").getAsString();
        }
      }
      throw new CheckpointException("%s: no %s is named %s".formatted(file, TEMPLATE, DEFAULT));
    }
    throw new CheckpointException(
        "%s: %s is no string and no list of templates with names".formatted(file, TEMPLATE));
  }

  private static boolean isText(@Nullable JsonElement value) {
    return value != null && value.isJsonPrimitive() && value.getAsJsonPrimitive().isString();
  }

  private static Map<String, String> tokens(Path folder) throws CheckpointException {
    Map<String, String> tokens = new HashMap<>();
    for (TokenizerSettings.Named named : TokenizerSettings.in(folder).named()) {
      if (named.role().endsWith("_token")) {
        tokens.put(named.role(), named.token().content());
      }
    }
    return tokens;
  }
}
