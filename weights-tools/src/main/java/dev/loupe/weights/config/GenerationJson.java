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
 * Hugging Face's generation_config.json: which tokens begin and end a text, and how its authors
 * sample, which is left to the user here.
 *
 * <p>Source: {@code GenerationConfig} in {@code generation/configuration_utils.py} of Hugging Face
 * transformers.
 *
 * @param bos the beginning of a text, if the file names one
 * @param eos where generation stops, if the file says so
 * @param others the names of all fields that it sets beside, but those that change no token
 */
public record GenerationJson(
    Optional<List<Long>> bos, Optional<List<Long>> eos, List<String> others) {
  public static final String FILE_NAME = "generation_config.json";
  public static final int MAX_BYTES = 16 << 20;
  private static final Set<String> WITHOUT_EFFECT =
      Set.of(
          "_from_model_config",
          "transformers_version",
          "use_cache",
          "cache_implementation",
          "pad_token_id", // pads batches, which Loupe does otherwise
          "decoder_start_token_id", // of encoder-decoders
          "output_attentions",
          "output_hidden_states",
          "output_scores",
          "output_logits",
          "return_dict_in_generate");

  /**
   * Reads it.
   *
   * @throws CheckpointException if it is no such JSON
   */
  static GenerationJson read(Path file) throws CheckpointException {
    return InputFile.read(file, MAX_BYTES, "a " + FILE_NAME).json(in -> fields(file, in));
  }

  private static GenerationJson fields(Path file, JsonReader in) throws IOException {
    Map<String, @Nullable List<Long>> tokens = new HashMap<>();
    List<String> others = new ArrayList<>();
    StrictJson.beginObject(in, file.toString());
    while (in.hasNext()) {
      String name = in.nextName();
      if (name.equals("bos_token_id") || name.equals("eos_token_id")) {
        tokens.put(name, ids(in, "%s: %s".formatted(file, name)));
      } else {
        if (in.peek() != JsonToken.NULL && !WITHOUT_EFFECT.contains(name)) {
          others.add(StrictJson.shown(name));
        }
        in.skipValue();
      }
    }
    in.endObject();
    return new GenerationJson(
        Optional.ofNullable(tokens.get("bos_token_id")),
        Optional.ofNullable(tokens.get("eos_token_id")),
        others);
  }

  /**
   * An id or a list of them; null for null, which transformers takes for a field that isn't set.
   */
  private static @Nullable List<Long> ids(JsonReader in, String what) throws IOException {
    if (in.peek() == JsonToken.NULL) {
      in.nextNull();
      return null;
    }
    List<Long> ids = new ArrayList<>();
    if (in.peek() == JsonToken.BEGIN_ARRAY) {
      in.beginArray();
      while (in.hasNext()) {
        ids.add(StrictJson.whole(in, what));
      }
      in.endArray();
    } else {
      ids.add(StrictJson.whole(in, what));
    }
    return ids;
  }
}
