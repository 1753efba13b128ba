package dev.loupe.weights;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.io.StrictJson;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;
import org.jspecify.annotations.Nullable;

/**
 * The adapter_config.json of a LoRA adapter, as PEFT writes it. Kinds that a sum of low rank
 * doesn't describe are refused by the name of the field that asks for them.
 *
 * <p>Source: {@code LoraConfig} in {@code src/peft/tuners/lora/config.py} of Hugging Face PEFT.
 */
public final class AdapterConfig {
  static final String FILE_NAME = "adapter_config.json";
  private static final int MAX_BYTES = 16 << 20;

  /** Fields that change what the adapter computes, or what it was trained on. */
  private static final Set<String> REFUSED =
      Set.of(
          "use_dora",
          "lora_bias",
          "layer_replication",
          "megatron_config",
          "trainable_token_indices",
          "target_parameters",
          "loftq_config",
          "use_qalora",
          "alora_invocation_tokens",
          "arrow_config",
          "corda_config",
          "lora_ga_config",
          "use_bdlora");

  /** Of {@code init_lora_weights}: ways to begin that change the base's weights, too. */
  private static final List<String> CHANGED_BASES =
      List.of("pissa", "olora", "corda", "loftq", "lora_ga");

  /** Fields that are heeded, and those that only training needs. */
  private static final Set<String> KNOWN =
      Set.of(
          "peft_type",
          "base_model_name_or_path",
          "revision",
          "r",
          "lora_alpha",
          "use_rslora",
          "rank_pattern",
          "alpha_pattern",
          "modules_to_save",
          "ensure_weight_tying",
          "init_lora_weights",
          "fan_in_fan_out", // the names of the tensors tell how a matrix lies
          "bias", // the tensors are there or not
          "target_modules",
          "exclude_modules",
          "layers_to_transform",
          "layers_pattern",
          "task_type",
          "inference_mode",
          "lora_dropout",
          "auto_mapping",
          "peft_version",
          "megatron_core",
          "qalora_group_size",
          "eva_config");

  private final Path file;
  private final JsonObject fields;

  private AdapterConfig(Path file, JsonObject fields) {
    this.file = file;
    this.fields = fields;
  }

  /**
   * Reads it, and doesn't judge it.
   *
   * @throws CheckpointException if it isn't JSON
   */
  public static AdapterConfig read(Path file) throws CheckpointException {
    return new AdapterConfig(file, InputFile.read(file, MAX_BYTES, "an adapter's config").object());
  }

  /** The base's name, as {@code OWNER/MODEL} or a path, with {@code @REVISION} if one is given. */
  Optional<String> base() {
    return text("base_model_name_or_path")
        .filter(name -> !name.isBlank())
        .map(name -> name + text("revision").map(revision -> "@" + revision).orElse(""));
  }

  /** The base's name or path without a revision. */
  Optional<String> basePath() {
    return text("base_model_name_or_path").filter(name -> !name.isBlank());
  }

  private Optional<String> text(String name) {
    JsonElement value = fields.get(name);
    return value != null && value.isJsonPrimitive() && value.getAsJsonPrimitive().isString()
        ? Optional.of(value.getAsString())
        : Optional.empty();
  }

  /**
   * Refuses what is no plain LoRA.
   *
   * @return what the user should know, one sentence each
   */
  List<String> check() throws CheckpointException {
    String kind = text("peft_type").orElse("unknown");
    if (!kind.equals("LORA")) {
      throw new CheckpointException(
          "%s is of an adapter of type %s; only LORA can be merged"
              .formatted(file, StrictJson.shown(kind)));
    }
    List<String> unknown = new ArrayList<>();
    for (Map.Entry<String, JsonElement> field : fields.entrySet()) {
      String name = field.getKey();
      if (isSet(field.getValue()) && REFUSED.contains(name)) {
        throw new CheckpointException(
            "%s sets %s: such an adapter can't be merged here; merge it with PEFT"
                .formatted(file, name));
      }
      if (isSet(field.getValue()) && !KNOWN.contains(name)) {
        unknown.add(StrictJson.shown(name));
      }
    }
    String init = text("init_lora_weights").orElse("");
    if (CHANGED_BASES.stream().anyMatch(init::startsWith)) {
      throw new CheckpointException(
          "%s says init_lora_weights %s, which changes the base's weights as well; merge it with PEFT"
              .formatted(file, StrictJson.shown(init)));
    }
    return unknown.isEmpty()
        ? List.of()
        : List.of(
            "%s sets %s, which Loupe doesn't know and doesn't heed"
                .formatted(FILE_NAME, String.join(", ", unknown)));
  }

  /** Whether a field is there with a value that isn't Python's idea of nothing. */
  private static boolean isSet(JsonElement value) {
    return switch (value) {
      case JsonArray array -> !array.isEmpty();
      case JsonObject object -> !object.isEmpty();
      default ->
          value.isJsonPrimitive()
              && !value.getAsString().isEmpty()
              && !value.getAsString().equals("false")
              && !value.getAsString().equals("0");
    };
  }

  private boolean flag(String name) {
    JsonElement value = fields.get(name);
    return value != null && isSet(value);
  }

  /** Whether this module is saved whole, {@code lm_head}, say. */
  boolean savesWhole(String module) {
    JsonElement names = fields.get("modules_to_save");
    if (names == null || !names.isJsonArray()) {
      return false;
    }
    for (JsonElement name : names.getAsJsonArray()) {
      if (name.isJsonPrimitive()
          && (module.equals(name.getAsString()) || module.endsWith("." + name.getAsString()))) {
        return true;
      }
    }
    return false;
  }

  /** Whether a head that is tied stays so where one of the two is trained. */
  boolean keepsTie() {
    return flag("ensure_weight_tying");
  }

  /**
   * By what the product of the two matrices is multiplied.
   *
   * @param module its name in the base model, {@code transformer.h.0.attn.c_attn}
   * @param rank of its matrices
   * @throws CheckpointException if the config says another rank
   */
  double scale(String module, int rank) throws CheckpointException {
    double said = patterned("rank_pattern", module, number("r", 8));
    if (said != rank) {
      throw new CheckpointException(
          "%s says rank %s for %s, but its matrices have rank %d"
              .formatted(file, said, StrictJson.shown(module), rank));
    }
    double alpha = patterned("alpha_pattern", module, number("lora_alpha", 8));
    return alpha / (flag("use_rslora") ? Math.sqrt(rank) : rank);
  }

  private double number(String name, double otherwise) throws CheckpointException {
    JsonElement value = fields.get(name);
    return value == null ? otherwise : number(name, value);
  }

  private double number(String name, @Nullable JsonElement value) throws CheckpointException {
    if (value == null
        || !value.isJsonPrimitive()
        || !value.getAsJsonPrimitive().isNumber()
        || !Double.isFinite(value.getAsDouble())) {
      throw new CheckpointException("%s: %s is not a number".formatted(file, name));
    }
    return value.getAsDouble();
  }

  /** The value of the first pattern that the module's name ends with, whole components of it. */
  private double patterned(String name, String module, double otherwise)
      throws CheckpointException {
    JsonElement patterns = fields.get(name);
    if (patterns == null || patterns.isJsonNull()) {
      return otherwise;
    }
    if (!patterns.isJsonObject()) {
      throw new CheckpointException("%s: %s is not an object".formatted(file, name));
    }
    Map<String, JsonElement> entries = new LinkedHashMap<>(patterns.getAsJsonObject().asMap());
    for (Map.Entry<String, JsonElement> entry : entries.entrySet()) {
      try {
        if (Pattern.matches("(?:.*\\.)?(?:" + entry.getKey() + ")", module)) {
          return number(name, entry.getValue());
        }
      } catch (PatternSyntaxException e) {
        throw new CheckpointException(
            "%s: %s has the pattern %s, which can't be read"
                .formatted(file, name, StrictJson.shown(entry.getKey())),
            e);
      }
    }
    return otherwise;
  }
}
