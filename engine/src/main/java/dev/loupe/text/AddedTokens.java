package dev.loupe.text;

import static java.util.Comparator.comparingInt;

import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.IntConsumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/**
 * Finds added tokens in text, as Hugging Face's tokenizers do (added_vocabulary.rs): from left to
 * right, the longest where several begin at one place.
 */
final class AddedTokens {
  private static final Pattern NOTHING = Pattern.compile("(?!)");
  private static final Pattern WORD = Pattern.compile("\\w", Pattern.UNICODE_CHARACTER_CLASS);
  private static final Pattern SPACE = Pattern.compile("\\s", Pattern.UNICODE_CHARACTER_CLASS);

  private final Map<String, AddedToken> byContent;
  private final Pattern any;
  private final Pattern plain; // those that aren't special

  /**
   * @param tokens all of different content
   */
  AddedTokens(List<AddedToken> tokens) {
    byContent =
        tokens.stream().collect(Collectors.toMap(AddedToken::content, Function.identity()));
    any = literals(tokens);
    plain = literals(tokens.stream().filter(token -> !token.special()).toList());
  }

  private static Pattern literals(List<AddedToken> tokens) {
    if (tokens.isEmpty()) {
      return NOTHING;
    }
    return Pattern.compile(
        tokens.stream()
            .map(AddedToken::content)
            .sorted(comparingInt(String::length).reversed())
            .map(Pattern::quote)
            .collect(Collectors.joining("|")));
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
      if (found == null || match.start() < done || (found.singleWord() && inWord(text, match))) {
        continue;
      }
      int start = match.start();
      while (found.lstrip() && start > done && is(SPACE, text.codePointBefore(start))) {
        start -= Character.charCount(text.codePointBefore(start));
      }
      other.accept(text.substring(done, start));
      token.accept(found.id());
      done = match.end();
      while (found.rstrip() && done < text.length() && is(SPACE, text.codePointAt(done))) {
        done += Character.charCount(text.codePointAt(done));
      }
    }
    other.accept(text.substring(done));
  }


  private static boolean inWord(String text, Matcher match) {
    return (match.start() > 0 && is(WORD, text.codePointBefore(match.start())))
        || (match.end() < text.length() && is(WORD, text.codePointAt(match.end())));
  }

  private static boolean is(Pattern kind, int codePoint) {
    return kind.matcher(Character.toString(codePoint)).matches();
  }
}
