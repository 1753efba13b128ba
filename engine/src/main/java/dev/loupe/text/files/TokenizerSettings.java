package dev.loupe.text.files;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.io.JsonValue;
import dev.loupe.weights.io.StrictJson;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * What Hugging Face's files beside a vocabulary say about it: tokenizer_config.json, and where that
 * lists no added tokens, special_tokens_map.json and added_tokens.json.
 *
 * <p>Source: {@code tokenization_utils_base.py} and {@code tokenization_auto.py} of Hugging Face
 * transformers 5.
 */
public final class TokenizerSettings {
  /** What their main file is called. */
  public static final String FILE_NAME = "tokenizer_config.json";

  static final String SPECIALS = "special_tokens_map.json";
  static final String ADDED = "added_tokens.json";
  private static final String DECODER = "added_tokens_decoder";
  private static final String MODEL_CONFIG = "config.json";
  private static final int MAX_BYTES = 32 << 20;
  private static final List<String> EXTRA =
      List.of("extra_special_tokens", "additional_special_tokens");

  /** Settings that change ids with some classes of tokenizers, and what they are unless set. */
  private static final Map<String, Boolean> CHANGING = new LinkedHashMap<>();

  static {
    for (String name :
        List.of(
            "do_lower_case",
            "strip_accents",
            "never_split",
            "keep_accents",
            "add_prefix_space",
            "split_special_tokens",
            "sp_model_kwargs",
            "extra_ids",
            "fix_mistral_regex",
            "do_normalize",
            "normalization",
            "auto_map")) {
      CHANGING.put(name, false);
    }
    CHANGING.put("tokenize_chinese_chars", true);
    CHANGING.put("do_basic_tokenize", true);
    CHANGING.put("remove_space", true);
  }

  /** A special token under its role, e.g. eos_token; its flags may be given. */
  public record Named(String role, AddedToken token, String file) {}

  private final JsonObject config;
  private final TokenizerClass opener;
  private final String classFile;
  private final Map<Integer, AddedToken> added = new TreeMap<>();
  private String addedFile = FILE_NAME;
  private final Map<String, Named> roles = new LinkedHashMap<>();
  private final Map<String, Named> others = new LinkedHashMap<>(); // without a role, by content
  private final Set<String> followed = new HashSet<>(); // names of settings that were asked for

  private TokenizerSettings(Path folder) throws CheckpointException {
    Path file = folder.resolve(FILE_NAME);
    config = object(file);
    String name = text(config, "tokenizer_class", file);
    String from = FILE_NAME;
    if (name == null && Files.exists(folder.resolve(MODEL_CONFIG))) {
      JsonObject model = object(folder.resolve(MODEL_CONFIG));
      from = MODEL_CONFIG;
      name = text(model, "tokenizer_class", folder.resolve(MODEL_CONFIG));
      name = name == null ? TokenizerClass.GPT2.name() : name;
    }
    opener = TokenizerClass.named(name);
    classFile = from;
    if (config.has(DECODER)) {
      readDecoder(file);
      readNamed(config, file);
    } else {
      readLegacy(folder, file);
    }
  }

  /**
   * Reads what is in {@code folder}.
   *
   * @throws CheckpointException if a file is broken; the message names it
   */
  public static TokenizerSettings in(Path folder) throws CheckpointException {
    try {
      return new TokenizerSettings(folder);
    } catch (IllegalArgumentException | IllegalStateException | UnsupportedOperationException e) {
      throw new CheckpointException(
          "%s: its %s, %s or %s makes no sense: %s"
              .formatted(folder, FILE_NAME, SPECIALS, ADDED, e.getMessage()),
          e);
    }
  }

  /**
   * The text of a tokenizer_config.json that names the class, where nothing in {@code folder} but
   * the model's config does; empty if the file need not change.
   *
   * @param opener as {@link #opener}
   */
  public static Optional<String> keepClass(Path folder, TokenizerClass opener)
      throws CheckpointException {
    JsonObject config = object(folder.resolve(FILE_NAME));
    if (text(config, "tokenizer_class", folder.resolve(FILE_NAME)) != null || opener.isGpt2()) {
      return Optional.empty();
    }
    config.addProperty(
        "tokenizer_class",
        opener.equals(TokenizerClass.NONE) ? "PreTrainedTokenizerFast" : opener.name());
    return Optional.of(config + "\n");
  }

  /** A file's JSON object; an empty one if there is no such file. */
  public static JsonObject object(Path file) throws CheckpointException {
    if (!Files.exists(file)) {
      return new JsonObject();
    }
    return InputFile.read(file, MAX_BYTES, "settings").object();
  }

  private static @Nullable String text(JsonObject json, String name, Path file)
      throws CheckpointException {
    JsonElement value = json.get(name);
    if (value == null || value.isJsonNull()) {
      return null;
    }
    try {
      return JsonValue.text(value, name);
    } catch (IllegalArgumentException e) {
      throw new CheckpointException("%s: %s".formatted(file, e.getMessage()), e);
    }
  }

  private void readDecoder(Path file) throws CheckpointException {
    JsonElement decoder = config.get(DECODER);
    if (!decoder.isJsonObject()) {
      throw new CheckpointException("%s: %s is not an object".formatted(file, DECODER));
    }
    for (Map.Entry<String, JsonElement> entry : decoder.getAsJsonObject().entrySet()) {
      int id;
      try {
        id = Integer.parseInt(entry.getKey());
      } catch (NumberFormatException e) {
        throw new CheckpointException(
            "%s: %s has \"%s\", which is no id".formatted(file, DECODER, entry.getKey()), e);
      }
      if (!entry.getValue().isJsonObject() || !entry.getValue().getAsJsonObject().has("content")) {
        throw new CheckpointException(
            "%s: %s has no content for id %d".formatted(file, DECODER, id));
      }
      added.put(id, token(entry.getValue(), id, false));
    }
  }

  private void readLegacy(Path folder, Path file) throws CheckpointException {
    readNamed(config, file);
    Path map = folder.resolve(SPECIALS);
    readNamed(object(map), map);
    addedFile = ADDED;
    Path tokens = folder.resolve(ADDED);
    Set<String> contents = new HashSet<>();
    named().forEach(token -> contents.add(token.token.content()));
    for (Map.Entry<String, JsonElement> entry : object(tokens).entrySet()) {
      String content = entry.getKey();
      boolean special = contents.contains(content);
      int id;
      try {
        id =
            JsonValue.whole(
                entry.getValue(), "the id of \"%s\"".formatted(StrictJson.shown(content)));
      } catch (IllegalArgumentException e) {
        throw new CheckpointException("%s: %s".formatted(tokens, e.getMessage()), e);
      }
      if (added.put(id, AddedToken.plain(content, id, special)) != null) {
        throw new CheckpointException("%s gives id %d twice".formatted(tokens, id));
      }
    }
  }

  private void readNamed(JsonObject json, Path file) {
    for (Map.Entry<String, JsonElement> entry : json.entrySet()) {
      String role = entry.getKey();
      JsonElement value = entry.getValue();
      if (EXTRA.contains(role)) {
        readExtra(role, value, file);
      } else if (role.endsWith("_token")) {
        name(role, value, file);
      }
    }
  }

  private void readExtra(String role, JsonElement value, Path file) {
    if (value instanceof JsonArray list) {
      list.forEach(token -> name(role, token, file));
    } else if (value instanceof JsonObject roles) {
      roles.entrySet().forEach(entry -> name(entry.getKey(), entry.getValue(), file));
    }
  }

  private void name(String role, JsonElement value, Path file) {
    boolean isText = value.isJsonPrimitive() && value.getAsJsonPrimitive().isString();
    boolean isToken = value.isJsonObject() && value.getAsJsonObject().has("content");
    if (isText || isToken) { // add_bos_token and the like are neither
      AddedToken token =
          isText ? AddedToken.plain(JsonValue.text(value, role), -1, true) : token(value, -1, true);
      Named given = new Named(role, token, String.valueOf(file.getFileName()));
      if (EXTRA.contains(role)) {
        others.put(token.content(), given);
      } else {
        roles.put(role, given); // of several files the last counts
      }
    }
  }

  private static AddedToken token(JsonElement json, int id, boolean isNamed) {
    JsonObject token = JsonValue.object(json, "a token");
    boolean special = isNamed || JsonValue.flag(token, "special", false);
    String content = JsonValue.text(token.get("content"), "content of a token");
    return AddedToken.of(content, id, special, token);
  }

  /** The class that transformers opens the tokenizer with. */
  TokenizerClass opener() {
    return opener;
  }

  /** The file that names the class, or the model's kind. */
  String classFile() {
    return classFile;
  }

  /** Tokens with ids of their own, by id. */
  Map<Integer, AddedToken> added() {
    return added;
  }

  /** The file that lists them. */
  String addedFile() {
    return addedFile;
  }

  /** Special tokens by what they are for, in the order of the files. */
  public List<Named> named() {
    return Stream.concat(roles.values().stream(), others.values().stream()).toList();
  }

  /** Whether a setting is there at all. */
  boolean has(String name) {
    return config.has(name) && !config.get(name).isJsonNull();
  }

  /** Whether a token's role is there and its value null, which leaves it out. */
  boolean isNull(String name) {
    return config.has(name) && config.get(name).isJsonNull();
  }

  boolean flag(String name, boolean otherwise) {
    followed.add(name);
    return has(name) ? JsonValue.flag(config.get(name), FILE_NAME + ": " + name) : otherwise;
  }

  int whole(String name, int otherwise) {
    followed.add(name);
    return has(name) ? JsonValue.whole(config.get(name), FILE_NAME + ": " + name) : otherwise;
  }

  /**
   * Settings that are there, change ids with some classes, and were not asked for until now: this
   * tokenizer does not follow them.
   */
  List<String> unfollowed() {
    List<String> unfollowed = new ArrayList<>();
    CHANGING.forEach(
        (name, unlessSet) -> {
          if (!followed.contains(name) && isSet(config.get(name), unlessSet)) {
            unfollowed.add(name);
          }
        });
    return unfollowed;
  }

  private static boolean isSet(@Nullable JsonElement value, boolean unlessSet) {
    return switch (value) {
      case JsonArray array -> !array.isEmpty();
      case JsonObject object -> !object.isEmpty();
      case JsonPrimitive flag when flag.isBoolean() -> flag.getAsBoolean() != unlessSet;
      case JsonPrimitive _ -> true;
      case null, default -> false;
    };
  }

  /** The content of the token in a role, or {@code otherwise}; null if it is left out. */
  @Nullable String token(String role, @Nullable String otherwise) {
    Named given = roles.get(role);
    if (given != null) {
      return given.token.content();
    }
    return isNull(role) ? null : otherwise;
  }
}
