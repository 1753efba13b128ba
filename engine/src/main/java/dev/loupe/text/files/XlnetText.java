package dev.loupe.text.files;

import java.text.Normalizer;
import java.util.Locale;
import java.util.function.UnaryOperator;
import java.util.regex.Pattern;

/**
 * What XLNetTokenizer does to a text before SentencePiece sees it.
 *
 * @param removesSpace whether white space is joined to one space, and none left at the ends
 * @param keepsAccents whether letters keep their accents
 * @param lowers whether letters become small
 */
record XlnetText(boolean removesSpace, boolean keepsAccents, boolean lowers)
    implements UnaryOperator<String> {
  private static final Pattern SPACES = Pattern.compile("(?U)\\s+");
  private static final Pattern ACCENTS = Pattern.compile("\\p{Mn}+");

  @Override
  public String apply(String text) {
    String changed = text.replace("``", "\"").replace("''", "\"");
    if (removesSpace) {
      changed = SPACES.matcher(changed).replaceAll(" ").strip();
    }
    if (!keepsAccents) {
      changed = ACCENTS.matcher(Normalizer.normalize(changed, Normalizer.Form.NFKD)).replaceAll("");
    }
    return lowers ? changed.toLowerCase(Locale.ROOT) : changed;
  }
}
