package dev.loupe.weights.torch;

import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.vocabulary.ByteAlphabet;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * The {@code meta.pkl} that nanoGPT's character data sets come with: a pickle of a dict in which
 * {@code itos} gives the character of each id.
 *
 * <p>Source: {@code data/shakespeare_char/prepare.py} of karpathy/nanoGPT.
 */
public final class CharacterVocabulary {
  private CharacterVocabulary() {}

  /**
   * Reads it.
   *
   * @throws CheckpointException if it is damaged or no such dict
   */
  public static Vocabulary read(Path meta) throws CheckpointException {
    InputFile file = InputFile.read(meta, PickleMachine.MAX_BYTES, "a list of characters");
    Object root = new PickleMachine(file, 0, file.bytes().byteSize(), new TorchObjects()).run();
    Map<String, Object> characters =
        TorchFile.dict(root)
            .flatMap(dict -> TorchFile.dict(dict.get("itos")))
            .orElseThrow(
                () ->
                    new CheckpointException(
                        meta + " has no dict itos, so no vocabulary of characters"));
    List<Vocabulary.Token> tokens = new ArrayList<>(characters.size());
    for (int id = 0; id < characters.size(); id++) {
      if (!(characters.get(Integer.toString(id)) instanceof String text) || text.isEmpty()) {
        throw new CheckpointException(
            "%s: its itos has no text for id %d of %d".formatted(meta, id, characters.size()));
      }
      tokens.add(new Vocabulary.Token(spelled(text), Vocabulary.Kind.NORMAL));
    }
    return new Vocabulary(tokens, List.of());
  }

  private static String spelled(String text) {
    StringBuilder symbols = new StringBuilder();
    for (byte b : text.getBytes(StandardCharsets.UTF_8)) {
      symbols.append(ByteAlphabet.symbol(b & 0xFF));
    }
    return symbols.toString();
  }
}
