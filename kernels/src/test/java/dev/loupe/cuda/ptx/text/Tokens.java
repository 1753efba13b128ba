package dev.loupe.cuda.ptx.text;

import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A file's words and signs, one after the other. */
public final class Tokens {
  private record Token(int line, String text) {}

  // a name may have dots inside, and "::" in modifiers; a label's colon is not part of it
  private static final Pattern TOKEN =
      Pattern.compile(
          "\\s+|//[^\\n]*|/\\*(?s:.*?)\\*/"
              + "|(?<token>\"[^\"]*\"|-?\\d[\\w.]*|[.%$\\w](?:[.$\\w]|::)*|[{}\\[\\](),;:@!|+<>=-])");

  private final List<Token> tokens = new ArrayList<>();
  private int next;

  public Tokens(String text) {
    Matcher matcher = TOKEN.matcher(text);
    int line = 1;
    int at = 0;
    while (at < text.length() && text.charAt(at) != 0) { // an image ends with a zero
      if (!matcher.find(at) || matcher.start() != at) {
        throw new PtxException("line %d: unexpected %s".formatted(line, text.charAt(at)));
      }
      String token = matcher.group("token");
      if (token != null) {
        tokens.add(new Token(line, token));
      }
      line += (int) matcher.group().chars().filter(c -> c == '\n').count();
      at = matcher.end();
    }
  }

  public boolean isEmpty() {
    return next == tokens.size();
  }

  public int line() {
    return tokens.get(Math.min(next, tokens.size() - 1)).line();
  }

  /** The next one, which stays. */
  public String peek() {
    return peek(0);
  }

  /** One further on, or the empty string behind the end. */
  public String peek(int ahead) {
    return next + ahead < tokens.size() ? tokens.get(next + ahead).text() : "";
  }

  public String take() {
    if (isEmpty()) {
      throw new PtxException("the PTX ends in the middle");
    }
    return tokens.get(next++).text();
  }

  /** Takes the next one if it is {@code text}. */
  public boolean accept(String text) {
    if (!peek().equals(text)) {
      return false;
    }
    next++;
    return true;
  }

  public void expect(String text) {
    int line = line();
    String found = take();
    if (!found.equals(text)) {
      throw new PtxException("line %d: expected %s, found %s".formatted(line, text, found));
    }
  }

  public int number() {
    return Math.toIntExact(Literals.parse(take(), line()));
  }
}
