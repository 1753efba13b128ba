package dev.loupe.text.files;

import com.google.gson.JsonObject;
import dev.loupe.weights.io.JsonValue;

/**
 * A token that is found in the text as it stands, before the tokenizer's model sees the rest: an
 * entry of {@code added_tokens} in a tokenizer.json.
 *
 * @param content its literal text; not spelled in the byte alphabet
 * @param id vocabulary id, which may lie beyond the model's vocabulary
 * @param special a control token, e.g. {@code <|endoftext|>}: not part of the text it stands in
 * @param singleWord only where no letter, digit or underscore touches it
 * @param lstrip it swallows the white space before it
 * @param rstrip it swallows the white space after it
 * @param normalized it is looked for after the normalizer changed the text, and changed likewise
 */
public record AddedToken(
    String content,
    int id,
    boolean special,
    boolean singleWord,
    boolean lstrip,
    boolean rstrip,
    boolean normalized) {

  public AddedToken {
    if (content.isEmpty()) {
      throw new IllegalArgumentException("added token %d is empty".formatted(id));
    }
  }

  /** One without settings of its own. */
  public static AddedToken plain(String content, int id, boolean special) {
    return new AddedToken(content, id, special, false, false, false, !special);
  }

  /** One with the settings that a file's object has for it, by their names there. */
  static AddedToken of(String content, int id, boolean special, JsonObject settings) {
    return new AddedToken(
        content,
        id,
        special,
        JsonValue.flag(settings, "single_word", false),
        JsonValue.flag(settings, "lstrip", false),
        JsonValue.flag(settings, "rstrip", false),
        JsonValue.flag(settings, "normalized", !special));
  }

  AddedToken withId(int other) {
    return new AddedToken(content, other, special, singleWord, lstrip, rstrip, normalized);
  }
}
