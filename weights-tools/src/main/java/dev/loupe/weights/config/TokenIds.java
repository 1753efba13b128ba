package dev.loupe.weights.config;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/** Ids that a file names as the beginning or the end of a text. */
public final class TokenIds {
  private TokenIds() {}

  /**
   * Those of them that the vocabulary has, each once, in their order. Negative ids stand for none.
   * Transformers writes GPT-2's id into every config that sets none, so of a small vocabulary it
   * means nothing; of any other id beyond the vocabulary the user hears.
   *
   * @param what the field, as the subject of a note
   */
  public static List<Integer> known(
      String what, List<Long> ids, int vocabSize, List<String> notes) {
    Set<Integer> known = new LinkedHashSet<>();
    for (long id : ids) {
      if (id >= 0 && id < vocabSize) {
        known.add((int) id);
      } else if (id >= 0 && id != Gpt2Config.END_OF_TEXT) {
        notes.add(
            "%s %d is beyond the vocabulary of %d and is left out".formatted(what, id, vocabSize));
      }
    }
    return new ArrayList<>(known);
  }
}
