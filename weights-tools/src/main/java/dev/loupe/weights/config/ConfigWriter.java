package dev.loupe.weights.config;

import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import dev.loupe.weights.tensor.DType;

/** Writes a config.json as Hugging Face transformers does. */
public final class ConfigWriter {
  private ConfigWriter() {}

  /**
   * The text of a config.json that Hugging Face transformers and {@link ConfigJson#read} both
   * understand.
   *
   * @param dtype how the weights are stored
   * @param tiedHead whether the head is {@code wte}
   */
  public static String text(Gpt2Config config, DType dtype, boolean tiedHead) {
    JsonObject json = fields(config);
    JsonArray architectures = new JsonArray();
    architectures.add("GPT2LMHeadModel");
    json.add("architectures", architectures);
    json.addProperty("tie_word_embeddings", tiedHead);
    json.addProperty("torch_dtype", torchName(dtype));
    return new GsonBuilder().setPrettyPrinting().serializeNulls().create().toJson(json) + "\n";
  }

  /** A config under the names of config.json. */
  public static JsonObject fields(Gpt2Config config) {
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
    JsonArray ends = new JsonArray();
    config.eosTokenIds().forEach(ends::add);
    json.add(
        "eos_token_id", ends.isEmpty() ? JsonNull.INSTANCE : ends.size() == 1 ? ends.get(0) : ends);
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
