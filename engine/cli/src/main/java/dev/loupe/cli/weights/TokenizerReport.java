package dev.loupe.cli.weights;

import com.google.gson.JsonArray;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import dev.loupe.text.Count;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.io.CheckpointException;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * What {@code loupe weights inspect} says of a model's tokenizer.
 *
 * @param size one more than its highest id; -1 if there is none that can be used
 * @param settings what is in force and the file that says so
 * @param notes one sentence each; why there is none, if so
 */
record TokenizerReport(int size, Map<String, String> settings, List<String> notes) {

  static TokenizerReport of(Checkpoint checkpoint, Optional<Path> gpt2) {
    try (Tokenizer tokenizer = Tokenizer.open(checkpoint, gpt2)) {
      return new TokenizerReport(tokenizer.size(), tokenizer.settings(), tokenizer.notes());
    } catch (CheckpointException e) {
      return new TokenizerReport(-1, Map.of(), List.of(String.valueOf(e.getMessage())));
    }
  }

  String text() {
    StringBuilder text = new StringBuilder("\n");
    text.append("  tokenizer    %s\n".formatted(size < 0 ? "none" : Count.of(size, "token")));
    settings.forEach((name, value) -> text.append("    %-22s %s\n".formatted(name, value)));
    return text.toString();
  }

  JsonObject json() {
    JsonObject json = new JsonObject();
    json.add("size", JsonNull.INSTANCE);
    if (size >= 0) {
      json.addProperty("size", size);
    }
    JsonObject named = new JsonObject();
    settings.forEach(named::addProperty);
    json.add("settings", named);
    JsonArray said = new JsonArray();
    notes.forEach(said::add);
    json.add("notes", said);
    return json;
  }
}
