package dev.loupe.weights.config;

import com.google.gson.stream.JsonReader;
import com.google.gson.stream.JsonToken;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.io.StrictJson;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * Hugging Face's config.json of a GPT-2 model.
 *
 * <p>Source: {@code GPT2Config} in {@code configuration_gpt2.py} of Hugging Face transformers.
 * {@code reorder_and_upcast_attn} and dropout are left aside: they don't change what a forward pass
 * in f32 computes. So are settings of training and of other heads.
 */
public final class ConfigJson {
  public static final String FILE_NAME = "config.json";
  private static final int MAX_BYTES = 16 << 20;

  private static final Set<String> FIELDS =
      Set.of(
          "model_type",
          "n_layer",
          "n_head",
          "n_embd",
          "n_positions",
          "n_ctx",
          "vocab_size",
          "n_inner",
          "activation_function",
          "layer_norm_epsilon",
          "scale_attn_weights",
          "scale_attn_by_inverse_layer_idx",
          "bos_token_id",
          "eos_token_id",
          "tie_word_embeddings",
          "pruned_heads",
          "quantization_config",
          "add_cross_attention");

  /** Fields that change what other kinds of models compute, or name code of a model's own. */
  private static final Set<String> OF_OTHERS =
      Set.of(
          "auto_map",
          "position_embedding_type",
          "rope_theta",
          "rope_scaling",
          "rope_parameters",
          "rotary_dim",
          "rotary_pct",
          "rotary",
          "alibi",
          "use_alibi",
          "num_key_value_heads",
          "n_head_kv",
          "multi_query",
          "head_dim",
          "sliding_window",
          "attn_logit_softcapping",
          "final_logit_softcapping",
          "parallel_attn",
          "use_parallel_residual",
          "use_rms_norm");

  /** Ways to mark positions that are GPT-2's own. */
  private static final Set<String> OWN_POSITIONS = Set.of("absolute", "learned");

  /** Other names that transformers knows fields by; where both are given, these count there. */
  private static final Map<String, String> ALIASES =
      Map.of(
          "hidden_size", "n_embd",
          "num_hidden_layers", "n_layer",
          "num_attention_heads", "n_head",
          "max_position_embeddings", "n_positions");

  /**
   * A field's value.
   *
   * @param text of a number, a string or a flag
   * @param items of an array of token ids; of another array or an object one element, or none if
   *     there is nothing in it
   */
  private record Value(JsonToken kind, String text, List<Value> items) {
    Value(JsonToken kind, String text) {
      this(kind, text, List.of());
    }

    @Override
    public String toString() {
      return switch (kind) {
        case STRING -> '"' + StrictJson.shown(text) + '"';
        case BEGIN_ARRAY -> "an array";
        case BEGIN_OBJECT -> "an object";
        case NULL -> "null";
        default -> StrictJson.shown(text);
      };
    }
  }

  private final Path file;
  private final Map<String, Value> values;
  private final List<String> notes = new ArrayList<>();

  private ConfigJson(Path file, Map<String, Value> values) {
    this.file = file;
    this.values = values;
  }

  /**
   * Reads a config.json.
   *
   * @throws CheckpointException if it isn't one, or describes what isn't a GPT-2 decoder
   */
  public static HfConfig read(Path file) throws CheckpointException {
    InputFile config = InputFile.read(file, MAX_BYTES, "a model's config");
    return new ConfigJson(file, config.json(in -> fields(file, in))).config();
  }

  private static Map<String, Value> fields(Path file, JsonReader in) throws IOException {
    Map<String, Value> values = new HashMap<>();
    StrictJson.beginObject(in, file.toString());
    while (in.hasNext()) {
      String name = in.nextName();
      if (!FIELDS.contains(name) && !ALIASES.containsKey(name) && !OF_OTHERS.contains(name)) {
        in.skipValue();
      } else if (values.put(name, value(in, name.equals("eos_token_id"))) != null) {
        throw new CheckpointException("%s gives %s twice".formatted(file, name));
      }
    }
    in.endObject();
    return values;
  }

  private static Value value(JsonReader in, boolean maybeList) throws IOException {
    JsonToken kind = in.peek();
    return switch (kind) {
      case NUMBER, STRING -> new Value(kind, in.nextString());
      case BOOLEAN -> new Value(kind, Boolean.toString(in.nextBoolean()));
      case BEGIN_ARRAY -> array(in, maybeList);
      case BEGIN_OBJECT -> object(in);
      default -> {
        in.skipValue();
        yield new Value(kind, "");
      }
    };
  }

  private static Value array(JsonReader in, boolean all) throws IOException {
    List<Value> items = new ArrayList<>();
    in.beginArray();
    while (in.hasNext()) {
      if (all) {
        items.add(value(in, false));
      } else {
        items = List.of(new Value(in.peek(), ""));
        in.skipValue();
      }
    }
    in.endArray();
    return new Value(JsonToken.BEGIN_ARRAY, "", items);
  }

  private static Value object(JsonReader in) throws IOException {
    List<Value> items = List.of();
    in.beginObject();
    while (in.hasNext()) {
      Value name = new Value(JsonToken.NAME, in.nextName());
      Value value = value(in, false);
      if (value.kind() != JsonToken.BEGIN_ARRAY || !value.items().isEmpty()) {
        items = List.of(name); // of the heads to prune, a layer without any doesn't count
      }
    }
    in.endObject();
    return new Value(JsonToken.BEGIN_OBJECT, "", items);
  }

  /** Puts the values of other names where the fields' own are. */
  private void resolveAliases() {
    ALIASES.forEach(
        (alias, name) -> {
          Value value = values.get(alias);
          if (value == null || value.kind() == JsonToken.NULL) {
            return;
          }
          Value own = values.put(name, value);
          if (own != null && !own.equals(value)) {
            notes.add(
                "%s says %s %s and %s %s: the latter counts, as in transformers"
                    .formatted(FILE_NAME, name, own, alias, value));
          }
        });
  }

  private void refuseOtherKinds() throws CheckpointException {
    String modelType = string("model_type", "gpt2");
    if (!modelType.equals("gpt2")) {
      throw new CheckpointException(
          "%s is of a model of type \"%s\"; only gpt2 can be used"
              .formatted(file, StrictJson.shown(modelType)));
    }
    if (flag("add_cross_attention", false)) {
      throw new CheckpointException(
          file + " has add_cross_attention true; only a decoder without it can be used");
    }
    Value pruned = values.get("pruned_heads");
    if (pruned != null && !pruned.items().isEmpty()) {
      throw new CheckpointException(
          file
              + " has pruned_heads: its layers lack heads, and only models with all of their heads"
              + " can be used");
    }
    if (isGiven("quantization_config")) {
      throw new CheckpointException(
          file
              + " has a quantization_config: its weights are quantised in a way that is not read;"
              + " save the model dequantised");
    }
  }

  private void noteFieldsOfOthers() {
    List<String> set = OF_OTHERS.stream().filter(this::isSet).sorted().toList();
    if (!set.isEmpty()) {
      notes.add(
          "%s sets %s: the GPT-2 of transformers does not know them, and they are not followed"
              .formatted(FILE_NAME, String.join(", ", set)));
    }
  }

  private boolean isSet(String name) {
    Value value = values.get(name);
    return value != null
        && switch (value.kind()) {
          case NULL -> false;
          case BOOLEAN -> Boolean.parseBoolean(value.text());
          case BEGIN_ARRAY, BEGIN_OBJECT -> !value.items().isEmpty();
          case STRING -> !OWN_POSITIONS.contains(value.text());
          default -> !(name.equals("num_key_value_heads") && value.equals(values.get("n_head")));
        };
  }

  private HfConfig config() throws CheckpointException {
    resolveAliases();
    refuseOtherKinds();
    noteFieldsOfOthers();
    int nEmbd = whole("n_embd");
    int vocabSize = whole("vocab_size");
    List<Integer> bos = tokenIds("bos_token_id", vocabSize);
    try {
      Gpt2Config config =
          new Gpt2Config(
              whole("n_layer"),
              whole("n_head"),
              nEmbd,
              whole(isGiven("n_positions") ? "n_positions" : "n_ctx"),
              vocabSize,
              isGiven("n_inner") ? whole("n_inner") : Math.clamp(4L * nEmbd, 0, 1 << 30),
              Activation.named(string("activation_function", "gelu_new")),
              real("layer_norm_epsilon", 1e-5f),
              flag("scale_attn_weights", true),
              flag("scale_attn_by_inverse_layer_idx", false),
              bos.isEmpty() ? -1 : bos.getFirst(),
              tokenIds("eos_token_id", vocabSize));
      String endsFrom = values.containsKey("eos_token_id") ? FILE_NAME : "transformers' default";
      return new HfConfig(
          config, flag("tie_word_embeddings", true), endsFrom, Optional.empty(), notes);
    } catch (IllegalArgumentException e) {
      throw new CheckpointException(file + ": " + e.getMessage(), e);
    }
  }

  private boolean isGiven(String name) {
    Value value = values.get(name);
    return value != null && value.kind() != JsonToken.NULL;
  }

  private String string(String name, String otherwise) throws CheckpointException {
    Value value = values.get(name);
    if (value == null) {
      return otherwise;
    }
    if (value.kind() != JsonToken.STRING) {
      throw wrong(name, value, "a string");
    }
    return StrictJson.shown(value.text());
  }

  private boolean flag(String name, boolean otherwise) throws CheckpointException {
    Value value = values.get(name);
    if (value == null) {
      return otherwise;
    }
    if (value.kind() != JsonToken.BOOLEAN) {
      throw wrong(name, value, "true or false");
    }
    return Boolean.parseBoolean(value.text());
  }

  private float real(String name, float otherwise) throws CheckpointException {
    Value value = values.get(name);
    if (value == null) {
      return otherwise;
    }
    if (value.kind() != JsonToken.NUMBER) {
      throw wrong(name, value, "a number");
    }
    return Float.parseFloat(value.text());
  }

  private int whole(String name) throws CheckpointException {
    Value value = values.get(name);
    if (value == null) {
      throw new CheckpointException(
          "%s has no %s".formatted(file, name.equals("n_ctx") ? "n_positions (nor n_ctx)" : name));
    }
    return whole(name, value);
  }

  private int whole(String name, Value value) throws CheckpointException {
    Long number = value.kind() == JsonToken.NUMBER ? StrictJson.wholeNumber(value.text()) : null;
    if (number == null) {
      throw wrong(name, value, "a whole number of at most 18 digits");
    }
    if (number.intValue() != number) {
      throw wrong(name, value, "within a range that makes sense");
    }
    return number.intValue();
  }

  /** None for an explicit null, GPT-2's where the field is missing. */
  private List<Integer> tokenIds(String name, int vocabSize) throws CheckpointException {
    Value value = values.get(name);
    List<Long> ids = new ArrayList<>();
    if (value == null) {
      ids.add((long) Gpt2Config.END_OF_TEXT);
    } else if (value.kind() == JsonToken.BEGIN_ARRAY && name.equals("eos_token_id")) {
      for (Value item : value.items()) {
        ids.add((long) whole(name, item));
      }
    } else if (value.kind() != JsonToken.NULL) {
      ids.add((long) whole(name, value));
    }
    return TokenIds.known("%s: %s".formatted(FILE_NAME, name), ids, vocabSize, notes);
  }

  private CheckpointException wrong(String name, @Nullable Value value, String expected) {
    return new CheckpointException("%s: %s is %s, not %s".formatted(file, name, value, expected));
  }
}
