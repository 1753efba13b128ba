package dev.loupe.weights;

import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.stream.JsonReader;
import com.google.gson.stream.JsonToken;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * Hugging Face's config.json of a GPT-2 model.
 *
 * <p>Source: {@code GPT2Config} in {@code configuration_gpt2.py} of Hugging Face transformers.
 * {@code reorder_and_upcast_attn} and dropout are left aside: they don't change what a forward pass
 * in f32 computes.
 */
final class ConfigJson {
  static final String FILE_NAME = "config.json";
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
          "add_cross_attention");

  /** A field's value: what kind it is, and its text where it is a number or a string. */
  private record Value(JsonToken kind, String text) {
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

  private ConfigJson(Path file, Map<String, Value> values) {
    this.file = file;
    this.values = values;
  }

  /**
   * Reads a config.json.
   *
   * @throws CheckpointException if it isn't one, or describes what isn't a GPT-2 decoder
   */
  static Gpt2Config read(Path file) throws CheckpointException {
    try (Arena arena = Arena.ofConfined()) {
      MappedFile mapped = MappedFile.open(file, arena);
      if (mapped.bytes().byteSize() > MAX_BYTES) {
        throw new CheckpointException(
            "%s has %d bytes, too many for a model's config"
                .formatted(file, mapped.bytes().byteSize()));
      }
      Map<String, Value> values =
          StrictJson.parse(file.toString(), mapped.bytes(), in -> fields(file, in));
      return new ConfigJson(file, values).config();
    }
  }

  private static Map<String, Value> fields(Path file, JsonReader in) throws IOException {
    Map<String, Value> values = new HashMap<>();
    StrictJson.beginObject(in, file.toString());
    while (in.hasNext()) {
      String name = in.nextName();
      if (!FIELDS.contains(name)) {
        in.skipValue();
      } else if (values.put(name, value(in, name.equals("eos_token_id"))) != null) {
        throw new CheckpointException("%s gives %s twice".formatted(file, name));
      }
    }
    in.endObject();
    return values;
  }

  /** The value that comes next; of a list, where one may stand, its first element. */
  private static Value value(JsonReader in, boolean maybeList) throws IOException {
    JsonToken kind = in.peek();
    if (kind == JsonToken.BEGIN_ARRAY && maybeList) {
      in.beginArray();
      Value first = in.hasNext() ? value(in, false) : new Value(kind, "");
      while (in.hasNext()) {
        in.skipValue();
      }
      in.endArray();
      return first;
    }
    return switch (kind) {
      case NUMBER, STRING -> new Value(kind, in.nextString());
      case BOOLEAN -> new Value(kind, Boolean.toString(in.nextBoolean()));
      default -> {
        in.skipValue();
        yield new Value(kind, "");
      }
    };
  }

  private Gpt2Config config() throws CheckpointException {
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
    int nEmbd = whole("n_embd");
    int vocabSize = whole("vocab_size");
    try {
      return new Gpt2Config(
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
          tokenId("bos_token_id", vocabSize),
          tokenId("eos_token_id", vocabSize));
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

  /**
   * -1 for an explicit null. The default stands in many configs whose vocabulary is smaller than
   * GPT-2's, because transformers writes it into every config that doesn't set the field: there it
   * means nothing.
   */
  private int tokenId(String name, int vocabSize) throws CheckpointException {
    Value value = values.get(name);
    int id;
    if (value == null) {
      id = Gpt2Config.END_OF_TEXT;
    } else if (value.kind() == JsonToken.NULL) {
      id = -1;
    } else {
      id = whole(name, value);
    }
    return id == Gpt2Config.END_OF_TEXT && id >= vocabSize ? -1 : id;
  }

  private CheckpointException wrong(String name, @Nullable Value value, String expected) {
    return new CheckpointException("%s: %s is %s, not %s".formatted(file, name, value, expected));
  }

  /**
   * The text of a config.json that Hugging Face transformers and {@link #read} both understand.
   *
   * @param dtype how the weights are stored
   * @param tiedHead whether the head is {@code wte}
   */
  static String text(Gpt2Config config, DType dtype, boolean tiedHead) {
    JsonObject json = fields(config);
    JsonArray architectures = new JsonArray();
    architectures.add("GPT2LMHeadModel");
    json.add("architectures", architectures);
    json.addProperty("tie_word_embeddings", tiedHead);
    json.addProperty("torch_dtype", torchName(dtype));
    return new GsonBuilder().setPrettyPrinting().serializeNulls().create().toJson(json) + "\n";
  }

  /** A config under the names of config.json. */
  static JsonObject fields(Gpt2Config config) {
    JsonObject json = new JsonObject();
    json.addProperty("model_type", "gpt2");
    json.addProperty("n_layer", config.nLayer());
    json.addProperty("n_head", config.nHead());
    json.addProperty("n_embd", config.nEmbd());
    json.addProperty("n_positions", config.nPositions());
    json.addProperty("n_ctx", config.nPositions());
    json.addProperty("vocab_size", config.vocabSize());
    json.addProperty("n_inner", config.nInner() == 4 * config.nEmbd() ? null : config.nInner());
    json.addProperty("activation_function", config.activation().configName());
    json.addProperty("layer_norm_epsilon", config.layerNormEpsilon());
    json.addProperty("scale_attn_weights", config.scaleAttnWeights());
    json.addProperty("scale_attn_by_inverse_layer_idx", config.scaleAttnByInverseLayerIdx());
    json.addProperty("bos_token_id", config.bosTokenId() < 0 ? null : config.bosTokenId());
    json.addProperty("eos_token_id", config.eosTokenId() < 0 ? null : config.eosTokenId());
    return json;
  }

  private static String torchName(DType dtype) {
    return switch (dtype) {
      case F64 -> "float64";
      case F32 -> "float32";
      case F16 -> "float16";
      case BF16 -> "bfloat16";
    };
  }
}
