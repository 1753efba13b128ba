package dev.loupe.text.files;

import dev.loupe.weights.vocabulary.SentencePieceModel;
import java.util.List;
import java.util.Map;
import java.util.function.UnaryOperator;
import org.jspecify.annotations.Nullable;

/**
 * A tokenizer that was read, with all that the settings beside it change.
 *
 * @param json the tokenizer
 * @param sentencePiece the model that it was made from, if it was one
 * @param before what its class does to a text before all else
 * @param everyPart whether each part between added tokens gets a space in front, or the first only
 * @param cleansUp whether text is shown without spaces before punctuation
 * @param opener the class that transformers opens it with
 * @param front spellings of the tokens in front of a text
 * @param unknown the token that is said to stand for what is unknown, if there is one
 * @param notes for the user, one sentence each
 * @param inForce setting to its value and the file that says so
 */
public record FoundTokenizer(
    TokenizerJson json,
    @Nullable SentencePieceModel sentencePiece,
    UnaryOperator<String> before,
    boolean everyPart,
    boolean cleansUp,
    TokenizerClass opener,
    List<String> front,
    @Nullable String unknown,
    List<String> notes,
    Map<String, String> inForce) {

  /** One that has no settings beside it. */
  public static FoundTokenizer plain(
      TokenizerJson json, List<String> front, Map<String, String> inForce) {
    return new FoundTokenizer(
        json,
        null,
        UnaryOperator.identity(),
        true,
        false,
        TokenizerClass.NONE,
        front,
        null,
        List.of(),
        inForce);
  }

  /** How its tokens are spelled; null if in GPT-2's alphabet of bytes. */
  public @Nullable Spelling spelling() {
    if (json.isByteLevel()) {
      return null;
    }
    return sentencePiece == null ? Spelling.of(json.decoder) : Spelling.of(sentencePiece);
  }
}
