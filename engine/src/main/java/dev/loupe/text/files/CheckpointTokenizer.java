package dev.loupe.text.files;

import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * The tokenizer of a checkpoint: the files beside the weights, else what the weights' own file
 * carries, or names.
 */
public final class CheckpointTokenizer {
  private CheckpointTokenizer() {}

  /**
   * Where its files would be: the adapter's folder where it brings a tokenizer, else the model's.
   */
  public static Path folder(Checkpoint checkpoint) {
    Optional<Path> adapter = checkpoint.adapter().filter(TokenizerFolder::isIn);
    if (adapter.isPresent()) {
      return adapter.get();
    }
    Path source = checkpoint.source();
    Path parent = source.toAbsolutePath().getParent();
    return Files.isDirectory(source) || parent == null ? source : parent;
  }

  /**
   * Reads it.
   *
   * @param gpt2 where GPT-2's own tokenizer is, for a checkpoint that names it
   * @throws CheckpointException if there is none, if it is broken or can't be used
   */
  public static FoundTokenizer read(Checkpoint checkpoint, Optional<Path> gpt2)
      throws CheckpointException {
    Path folder = folder(checkpoint);
    Optional<Vocabulary> own = checkpoint.vocabulary();
    int rows = checkpoint.config().vocabSize();
    if (own.isEmpty() || TokenizerFolder.isIn(folder)) {
      return TokenizerFolder.read(folder, rows);
    }
    if (own.get().equals(Vocabulary.GPT2)) {
      return TokenizerFolder.read(gpt2.orElse(folder), rows);
    }
    return carried(own.get(), checkpoint.source());
  }

  /**
   * Reads what the weights' own file carries, whatever lies beside it.
   *
   * @throws CheckpointException if it is broken
   */
  public static FoundTokenizer carriedBy(Checkpoint checkpoint) throws CheckpointException {
    Vocabulary own = checkpoint.vocabulary().orElse(new Vocabulary(List.of(), List.of()));
    return carried(own, checkpoint.source());
  }

  private static FoundTokenizer carried(Vocabulary own, Path source) throws CheckpointException {
    try {
      TokenizerJson json = TokenizerJson.of(own);
      Map<String, String> inForce = new LinkedHashMap<>();
      inForce.put("vocabulary", "byte-level BPE, in %s".formatted(source.getFileName()));
      List<String> front = new ArrayList<>();
      if (own.front() >= 0) {
        front.add(own.tokens().get(own.front()).spelling());
        inForce.put("in front of a text", front.getFirst() + ", by add_bos_token");
      }
      return FoundTokenizer.plain(json, front, inForce);
    } catch (IllegalArgumentException e) {
      throw TokenizerFolder.unusable(source, e);
    }
  }
}
