package dev.loupe.text.codec;

import static java.util.Comparator.comparingInt;

import dev.loupe.text.files.AddedToken;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.IntConsumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Finds added tokens in text, as Hugging Face's tokenizers do (added_vocabulary.rs): from left to
 * right, the longest where several begin at one place.
 */
final class AddedTokens {
  private static final Pattern NOTHING = Pattern.compile("(?!)");

  private final Map<String, AddedToken> byContent;
  private final Pattern any;
  private final Pattern plain; // those that aren't special

  /**
   * @param tokens all of different content
   */
  AddedTokens(List<AddedToken> tokens) {
    byContent = HashMap.newHashMap(tokens.size());
    List<String> all = new ArrayList<>();
    List<String> notSpecial = new ArrayList<>();
    for (AddedToken token : tokens) {
      byContent.put(token.content(), token);
      all.add(token.content());
      if (!token.special()) {
        notSpecial.add(token.content());
      }
    }
    any = literals(all);
    plain = literals(notSpecial);
  }

  private static Pattern literals(List<String> contents) {
    if (contents.isEmpty()) {
      return NOTHING;
    }
    contents.sort(comparingInt(String::length).reversed());
    contents.replaceAll(Pattern::quote);
    return Pattern.compile(String.join("|", contents));
  }

  /**
   * Gives the parts of {@code text} in order: {@code token} the ids of added tokens, {@code other}
   * the text around them.
   *
   * @param parseSpecial whether special tokens are looked for too
   */
  void split(String text, boolean parseSpecial, IntConsumer token, Consumer<String> other) {
    Matcher match = (parseSpecial ? any : plain).matcher(text);
    int done = 0;
    while (match.find()) {
      AddedToken found = byContent.get(match.group());
      if (found == null || (found.singleWord() && inWord(text, match))) {
        continue;
      }
      int start = match.start();
      while (found.lstrip() && start > done && is("\\s", text.codePointBefore(start))) {
        start -= Character.charCount(text.codePointBefore(start));
      }
      other.accept(text.substring(done, Math.max(done, start))); // done: past swallowed space
      token.accept(found.id());
      done = match.end();
      while (found.rstrip() && done < text.length() && is("\\s", text.codePointAt(done))) {
        done += Character.charCount(text.codePointAt(done));
      }
    }
    other.accept(text.substring(done));
  }

  /** {@code text} with {@code mark} behind the first character of each special token in it. */
  String marked(String text, char mark) {
    return any.matcher(text)
        .replaceAll(
            found -> {
              AddedToken token = byContent.get(found.group());
              boolean special = token != null && token.special();
              int end = Character.charCount(found.group().codePointAt(0));
              return Matcher.quoteReplacement(
                  special
                      ? found.group().substring(0, end) + mark + found.group().substring(end)
                      : found.group());
            });
  }

  private static boolean inWord(String text, Matcher match) {
    return (match.start() > 0 && is("\\w", text.codePointBefore(match.start())))
        || (match.end() < text.length() && is("\\w", text.codePointAt(match.end())));
  }

  private static boolean is(String characterClass, int codePoint) {
    return Pattern.matches("(?U)" + characterClass, Character.toString(codePoint));
  }
}
