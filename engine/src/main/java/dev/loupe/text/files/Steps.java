package dev.loupe.text.files;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.loupe.weights.io.JsonValue;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Set;
import java.util.function.Consumer;

/**
 * The steps that a tokenizer takes around its model: JSON objects with a type, one alone or several
 * in a Sequence.
 */
final class Steps {
  private static final Set<String> NORMALIZERS =
      Set.of(
          "NFC",
          "NFD",
          "NFKC",
          "NFKD",
          "Nmt",
          "Lowercase",
          "Strip",
          "StripAccents",
          "Prepend",
          "Replace",
          "ByteLevel",
          "BertNormalizer",
          "Precompiled");
  private static final Set<String> PRE_TOKENIZERS =
      Set.of(
          "ByteLevel",
          "Digits",
          "Split",
          "Whitespace",
          "WhitespaceSplit",
          "Punctuation",
          "Metaspace",
          "BertPreTokenizer",
          "CharDelimiterSplit",
          "UnicodeScripts");

  private Steps() {}

  /** A step without settings yet. */
  static JsonObject step(String type) {
    JsonObject step = new JsonObject();
    step.addProperty("type", type);
    return step;
  }

  /** The type of one step. */
  static String type(JsonObject step) {
    return step.has("type") ? JsonValue.text(step.get("type"), "the type of a step") : "untyped";
  }

  /** The types of the steps in {@code step}. */
  static List<String> types(JsonElement step) {
    List<String> types = new ArrayList<>();
    forEach(step, one -> types.add(type(one)));
    return types;
  }

  /** Gives the steps in their order; a Sequence lists its own. */
  static void forEach(JsonElement step, Consumer<JsonObject> action) {
    if (step.isJsonNull()) {
      return;
    }
    JsonObject object = JsonValue.object(step, "one of its steps");
    if (!type(object).equals("Sequence")) {
      action.accept(object);
      return;
    }
    for (JsonElement value : object.asMap().values()) {
      if (value instanceof JsonArray sequence) { // its name depends on the kind of step
        sequence.forEach(element -> forEach(element, action));
      }
    }
  }

  /**
   * Checks the steps that the native library is to take.
   *
   * @throws IllegalArgumentException if one is of a kind that is not known, or could end the
   *     process; the message names it
   */
  static void check(JsonElement normalizer, JsonElement preTokenizer) {
    check(normalizer, "normalizer", NORMALIZERS);
    check(preTokenizer, "pre_tokenizer", PRE_TOKENIZERS);
  }

  /**
   * The native library ends the process when a pattern takes too long or a table of characters
   * leads nowhere.
   */
  private static void check(JsonElement step, String what, Set<String> known) {
    forEach(
        step,
        one -> {
          String type = type(one);
          if (!known.contains(type)) {
            throw new IllegalArgumentException("its %s is %s".formatted(what, type));
          }
          if (type.equals("Precompiled")) {
            var _ = new Charsmap(ByteBuffer.wrap(base64(one)));
          }
          if (one.get("pattern") instanceof JsonObject pattern && pattern.has("Regex")) {
            SafePattern.check(JsonValue.text(pattern.get("Regex"), "Regex"));
          }
        });
  }

  private static byte[] base64(JsonObject step) {
    JsonElement map = step.get("precompiled_charsmap");
    return Base64.getDecoder()
        .decode(map == null || map.isJsonNull() ? "" : JsonValue.text(map, "precompiled_charsmap"));
  }
}
