package dev.loupe.text.files;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.loupe.weights.io.JsonValue;
import java.util.ArrayList;
import java.util.List;

/**
 * What a tokenizer puts around a text: the post_processor of a tokenizer.json.
 *
 * @param front literal spellings of the tokens in front of a text
 * @param behind likewise of those behind it
 */
record PostProcessor(List<String> front, List<String> behind) {
  private static final int MOST_AROUND = 1 << 10;

  /**
   * Reads one.
   *
   * @throws IllegalArgumentException if it is of a kind that is not known
   */
  static PostProcessor of(JsonElement step) {
    PostProcessor around = new PostProcessor(new ArrayList<>(), new ArrayList<>());
    around.add(step);
    return around;
  }

  private void add(JsonElement step) {
    if (step.isJsonNull()) {
      return;
    }
    JsonObject object = JsonValue.object(step, "a step of its post_processor");
    String type = Steps.type(object);
    switch (type) {
      case "ByteLevel" -> {} // only trims the places of tokens
      case "Sequence" -> JsonValue.array(object.get("processors"), "processors").forEach(this::add);
      case "BertProcessing", "RobertaProcessing" -> {
        JsonArray cls = JsonValue.array(object.get("cls"), "cls");
        front.addFirst(JsonValue.text(cls.isEmpty() ? null : cls.get(0), "the token in cls"));
        JsonArray sep = JsonValue.array(object.get("sep"), "sep");
        behind.add(JsonValue.text(sep.isEmpty() ? null : sep.get(0), "the token in sep"));
      }
      case "TemplateProcessing" -> addTemplate(object);
      default -> throw new IllegalArgumentException("its post_processor is %s".formatted(type));
    }
  }

  private void addTemplate(JsonObject template) {
    List<String> before = new ArrayList<>();
    List<String> side = before;
    for (JsonElement part : JsonValue.array(template.get("single"), "single")) {
      JsonObject one = JsonValue.object(part, "a part of single");
      if (!one.has("SpecialToken")) { // the text
        side = behind;
        continue;
      }
      JsonObject special = JsonValue.object(one.get("SpecialToken"), "SpecialToken");
      String name = JsonValue.text(special.get("id"), "id of SpecialToken");
      JsonObject known = JsonValue.object(template.get("special_tokens"), "special_tokens");
      JsonObject token = JsonValue.object(known.get(name), "its special token " + name);
      for (JsonElement spelling : JsonValue.array(token.get("tokens"), "tokens")) {
        side.add(JsonValue.text(spelling, "one of tokens"));
      }
      if (side.size() > MOST_AROUND) {
        throw new IllegalArgumentException(
            "its post_processor adds more than %d tokens to a text".formatted(MOST_AROUND));
      }
    }
    front.addAll(0, before);
  }
}
