package dev.loupe.serve.workbench;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Prompt;
import dev.loupe.generate.ReadRequest;
import dev.loupe.model.Interventions;
import dev.loupe.model.ModelInfo;
import dev.loupe.ops.Mask;
import dev.loupe.serve.http.ApiException;
import dev.loupe.serve.http.Fields;
import dev.loupe.serve.http.KnownFields;
import dev.loupe.weights.config.Gpt2Config;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A text and how it is read: what a run of the workbench is a function of, and its name.
 *
 * @param ids the tokens, at least one and no more than the context holds
 * @param promptLength how many of them are the prompt's
 * @param changes to heads
 * @param heads how many a layer is cut into; 0 for the model's own
 */
record RunSpec(List<Integer> ids, int promptLength, List<Change> changes, int heads, Mask mask) {
  private static final int ID_BYTES = 16; // of the hash, which is enough to tell runs apart
  private static final int MOST_CHANGES = 4096;

  /** What becomes of a head: times a factor, or its mean. */
  record Change(int layer, int head, double factor, boolean mean) {}

  RunSpec {
    ids = List.copyOf(ids);
    changes = List.copyOf(changes);
  }

  /** That of a request's fields, for a text of {@code ids}. */
  static RunSpec of(Fields fields, int[] ids, Gpt2Config config) {
    List<Integer> tokens = new ArrayList<>();
    for (int id : ids) {
      tokens.add(id);
    }
    return new RunSpec(
        tokens,
        (int) fields.whole("prompt_length", ids.length, 1, ids.length),
        changes(fields.get("changes")),
        (int) fields.whole("n_head", 0, 0, config.nEmbd()),
        mask(fields.string("mask")));
  }

  private static List<Change> changes(@Nullable JsonElement value) {
    if (value == null) {
      return List.of();
    }
    if (!value.isJsonArray() || value.getAsJsonArray().size() > MOST_CHANGES) {
      throw Fields.wrong(
          "changes", value, "an array of at most %d objects".formatted(MOST_CHANGES));
    }
    List<Change> changes = new ArrayList<>();
    for (JsonElement change : value.getAsJsonArray()) {
      if (!change.isJsonObject()) {
        throw Fields.wrong("changes", change, "an object with layer, head, and factor or mean");
      }
      Fields fields = new Fields(change.getAsJsonObject());
      KnownFields.CHANGES.check(fields);
      changes.add(
          new Change(
              (int) fields.whole("layer", 0, 0, Integer.MAX_VALUE),
              (int) fields.whole("head", 0, 0, Integer.MAX_VALUE),
              fields.number("factor", 0),
              fields.flag("mean")));
    }
    return changes;
  }

  private static Mask mask(@Nullable String name) {
    return switch (name == null ? "causal" : name) {
      case "causal" -> Mask.CAUSAL;
      case "none" -> Mask.FULL;
      default -> throw ApiException.field("mask", null, "mask is not causal or none");
    };
  }

  /** The same, of a longer text. */
  RunSpec with(List<Integer> more) {
    return new RunSpec(more, promptLength, changes, heads, mask);
  }

  /** How many tokens the text has. */
  int length() {
    return ids.size();
  }

  /**
   * @param what is only done of such a run
   * @throws ApiException if the mask is another
   */
  void requireCausal(String what) {
    if (mask != Mask.CAUSAL) {
      throw ApiException.invalid(400, null, what + " of runs with the causal mask");
    }
  }

  boolean isPlain() {
    return changes.isEmpty() && heads == 0 && mask == Mask.CAUSAL;
  }

  /**
   * @throws IllegalArgumentException if a head is changed twice, or a factor is no number
   */
  Interventions interventions() {
    Interventions all = heads == 0 ? Interventions.NONE : Interventions.NONE.heads(heads);
    for (Change change : changes) {
      all =
          change.mean
              ? all.mean(change.layer, change.head)
              : all.scale(change.layer, change.head, change.factor);
    }
    return all;
  }

  /** The text. */
  Prompt prompt() {
    return Prompt.ids(ids.stream().mapToInt(Integer::intValue).toArray()).length(promptLength);
  }

  /** Continues the text so; a causal mask is taken for granted. */
  GenerateRequest writing() {
    return GenerateRequest.of(prompt()).interventions(interventions());
  }

  /** Reads the text so. */
  ReadRequest reading() {
    return ReadRequest.of(prompt()).interventions(interventions()).mask(mask);
  }

  /** Its name: the same text read the same way by the same model has the same one. */
  String id(ModelInfo model) {
    JsonObject all = json();
    all.addProperty("model", model.sha256().orElse(model.source()));
    all.addProperty("backend", model.backend());
    JsonArray text = new JsonArray();
    ids.forEach(text::add);
    all.add("ids", text);
    try {
      byte[] hash = MessageDigest.getInstance("SHA-256").digest(all.toString().getBytes(UTF_8));
      return HexFormat.of().formatHex(hash, 0, ID_BYTES);
    } catch (NoSuchAlgorithmException everyJavaHasIt) {
      throw new AssertionError(everyJavaHasIt);
    }
  }

  /** How the text is read. */
  JsonObject json() {
    JsonObject json = new JsonObject();
    json.addProperty("prompt_length", promptLength);
    JsonArray list = new JsonArray();
    for (Change change : changes) {
      JsonObject one = new JsonObject();
      one.addProperty("layer", change.layer);
      one.addProperty("head", change.head);
      if (change.mean) {
        one.addProperty("mean", true);
      } else {
        one.addProperty("factor", change.factor);
      }
      list.add(one);
    }
    json.add("changes", list);
    json.addProperty("mask", mask == Mask.CAUSAL ? "causal" : "none");
    json.addProperty("n_head", heads);
    return json;
  }
}
