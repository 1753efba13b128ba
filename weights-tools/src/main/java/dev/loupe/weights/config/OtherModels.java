package dev.loupe.weights.config;

import dev.loupe.weights.io.CheckpointException;
import java.nio.file.Path;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Pattern;

/** Programs that train GPT-2s and save them under names of their own, told by those names. */
public final class OtherModels {
  private static final Map<Pattern, String> PROGRAMS = new LinkedHashMap<>();

  static {
    PROGRAMS.put(
        Pattern.compile("language_model\\.|query_key_value|\\binput_layernorm\\.|linear_qkv\\."),
        "Megatron-LM");
    PROGRAMS.put(
        Pattern.compile("decoder\\.layers\\.[0-9]+\\.|decoder\\.embed_tokens\\.|\\.in_proj_weight"),
        "fairseq");
  }

  private OtherModels() {}

  /**
   * Refuses tensors that are called as another program calls them.
   *
   * @throws CheckpointException if they are
   */
  public static void refuse(Path file, Collection<String> names) throws CheckpointException {
    for (Map.Entry<Pattern, String> program : PROGRAMS.entrySet()) {
      if (names.stream().anyMatch(name -> program.getKey().matcher(name).find())) {
        throw of(file, program.getValue());
      }
    }
  }

  /** The refusal of a file of {@code program}. */
  static CheckpointException of(Path file, String program) {
    return new CheckpointException(
        "%s is a checkpoint of %s, which is not read: convert it to Hugging Face's format first"
            .formatted(file, program));
  }
}
