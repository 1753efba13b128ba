package dev.loupe.weights.config;

import dev.loupe.weights.io.CheckpointException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/**
 * What the JSON files beside Hugging Face's weights say of a model: config.json, and
 * generation_config.json where it is there, whose bos and end tokens take precedence.
 *
 * @param config the model's shape and tokens
 * @param tied whether the head is {@code wte} ({@code tie_word_embeddings}, true unless it is set)
 * @param endsFrom the file that the end tokens are from, as a note names it
 * @param generation generation_config.json, if there is one
 * @param notes for the user, one sentence each
 */
public record HfConfig(
    Gpt2Config config,
    boolean tied,
    String endsFrom,
    Optional<Path> generation,
    List<String> notes) {
  public HfConfig {
    notes = List.copyOf(notes);
  }

  /**
   * Reads the files beside {@code weights}.
   *
   * @throws CheckpointException if config.json is not there, or one of the two makes no sense
   */
  public static HfConfig beside(Path weights) throws CheckpointException {
    HfConfig model = ConfigJson.read(weights.resolveSibling(ConfigJson.FILE_NAME));
    Path file = weights.resolveSibling(GenerationJson.FILE_NAME);
    return Files.exists(file) ? model.with(GenerationJson.read(file), file) : model;
  }

  private HfConfig with(GenerationJson generation, Path file) {
    List<String> all = new ArrayList<>(notes);
    int bos = config.bosTokenId();
    if (generation.bos().isPresent()) {
      List<Integer> known =
          TokenIds.known(
              GenerationJson.FILE_NAME + ": bos_token_id",
              generation.bos().get(),
              config.vocabSize(),
              all);
      bos = known.isEmpty() ? -1 : known.getFirst();
    }
    List<Integer> ends = config.eosTokenIds();
    if (generation.eos().isPresent()) {
      ends =
          TokenIds.known(
              GenerationJson.FILE_NAME + ": eos_token_id",
              generation.eos().get(),
              config.vocabSize(),
              all);
    }
    if (!generation.others().isEmpty()) {
      all.add(
          "%s sets %s, which Loupe does not take over: give them as options"
              .formatted(GenerationJson.FILE_NAME, String.join(", ", generation.others())));
    }
    return new HfConfig(
        config.withTokens(bos, ends),
        tied,
        generation.eos().isPresent() ? GenerationJson.FILE_NAME : endsFrom,
        Optional.of(file),
        all);
  }
}
