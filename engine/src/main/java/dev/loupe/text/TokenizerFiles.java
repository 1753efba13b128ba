package dev.loupe.text;

import static java.nio.charset.StandardCharsets.UTF_8;

import dev.loupe.text.codec.TokenTable;
import dev.loupe.text.files.CheckpointTokenizer;
import dev.loupe.text.files.FoundTokenizer;
import dev.loupe.text.files.Gpt2Differences;
import dev.loupe.text.files.TokenizerFolder;
import dev.loupe.text.files.TokenizerJson;
import dev.loupe.text.files.TokenizerSettings;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.vocabulary.HfTokenizer;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** A checkpoint's tokenizer in the forms in which the files of other models carry one. */
public final class TokenizerFiles {
  private TokenizerFiles() {}

  /**
   * The tokenizer of {@link Tokenizer#open(Checkpoint, Optional)} as tables of a byte-level BPE, to
   * be written into another file. Read anew: an open tokenizer keeps its merges in native memory
   * only.
   *
   * @throws CheckpointException as {@link Tokenizer#open(Path)}, or if it has what such tables
   *     can't carry; the message names it
   */
  public static Vocabulary vocabulary(Checkpoint checkpoint, Optional<Path> gpt2)
      throws CheckpointException {
    FoundTokenizer found = CheckpointTokenizer.read(checkpoint, gpt2);
    TokenizerJson json = found.json();
    try {
      List<String> lost = Gpt2Differences.of(json);
      if (found.sentencePiece() != null) {
        lost = List.of("SentencePiece");
      }
      if (found.front().size() > 1) {
        lost = List.of("several tokens in front of a text");
      }
      if (!lost.isEmpty()) {
        throw new CheckpointException(
            "%s: its tokenizer has %s, which a GGUF file of GPT-2 can't carry; convert to a folder"
                .formatted(checkpoint.source(), String.join(", ", lost)));
      }
      TokenTable table = new TokenTable(json.vocab(), json.added(), null);
      List<Vocabulary.Token> tokens = new ArrayList<>();
      for (int id = 0; id < table.size(); id++) {
        tokens.add(
            table.contains(id)
                ? new Vocabulary.Token(table.raw(id), kind(table, id))
                : Vocabulary.Token.unused(id));
      }
      int front = found.front().isEmpty() ? -1 : table.idOf(found.front().getFirst()).orElse(-1);
      int unknown = json.unknown();
      if (unknown < 0 && found.unknown() != null) {
        unknown = table.idOf(found.unknown()).orElse(-1);
      }
      Optional<ChatFormat> chat = ChatFormat.of(checkpoint.source());
      if (chat.isEmpty()) {
        chat = ChatFormat.carried(checkpoint);
      }
      return new Vocabulary(tokens, json.merges(), front, unknown, chat.map(ChatFormat::template));
    } catch (IllegalArgumentException e) {
      throw TokenizerFolder.unusable(checkpoint.source(), e);
    }
  }

  /**
   * The tokenizer of {@link Tokenizer#open(Checkpoint, Optional)} as files for a model's folder, by
   * their names: those beside the weights, or a tokenizer.json made from what else is there. None
   * if there is no tokenizer, or one that has no such form.
   *
   * @throws CheckpointException if there is one and it is broken
   */
  public static Map<String, byte[]> files(Checkpoint checkpoint, Optional<Path> gpt2)
      throws CheckpointException {
    Path folder = CheckpointTokenizer.folder(checkpoint);
    boolean beside = TokenizerFolder.isIn(folder);
    if (checkpoint.vocabulary().isEmpty() && !beside) {
      return Map.of();
    }
    if (beside) {
      FoundTokenizer found = CheckpointTokenizer.read(checkpoint, gpt2);
      Map<String, byte[]> files = TokenizerFolder.contents(folder);
      TokenizerSettings.keepClass(folder, found.opener())
          .ifPresent(text -> files.put(TokenizerSettings.FILE_NAME, text.getBytes(UTF_8)));
      return files;
    }
    Vocabulary vocabulary = vocabulary(checkpoint, gpt2);
    return vocabulary.merges().isEmpty()
        ? Map.of()
        : Map.of(TokenizerJson.FILE_NAME, HfTokenizer.json(vocabulary));
  }

  private static Vocabulary.Kind kind(TokenTable table, int id) {
    return table.isSpecial(id)
        ? Vocabulary.Kind.SPECIAL
        : table.isLiteral(id) ? Vocabulary.Kind.ADDED : Vocabulary.Kind.NORMAL;
  }
}
