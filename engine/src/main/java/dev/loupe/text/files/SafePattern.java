package dev.loupe.text.files;

/**
 * Tells which regular expressions of a tokenizer.json may be given to the native library. It ends
 * the process when a match takes too many steps, so that only patterns pass whose steps grow no
 * faster than the text.
 *
 * <p>An expression passes if no repeated group holds a repetition, and if in every sequence at most
 * one unbounded repetition stands before the last part that must match: that one may be taken back
 * step by step, two of them in every combination. GPT-2's own pattern and those of later models
 * (cl100k, o200k, Llama 3, Qwen) pass.
 */
final class SafePattern {
  private static final int UNBOUNDED = 64; // of {n,m}: from here on m counts as no bound

  private final String pattern;
  private int at;

  private SafePattern(String pattern) {
    this.pattern = pattern;
  }

  /**
   * What one sequence of parts can do.
   *
   * @param repetitions unbounded ones
   * @param retried unbounded ones before the last part that must match
   * @param optional whether it may match nothing
   */
  private record Cost(int repetitions, int retried, boolean optional) {
    static final Cost NOTHING = new Cost(0, 0, true);

    Cost or(Cost other) {
      return new Cost(
          Math.max(repetitions, other.repetitions),
          Math.max(retried, other.retried),
          optional || other.optional);
    }

    Cost then(Cost next) {
      int before = next.optional && next.retried == 0 ? retried : repetitions + next.retried;
      return new Cost(
          repetitions + next.repetitions, Math.max(retried, before), optional && next.optional);
    }
  }

  /**
   * Checks a pattern.
   *
   * @throws IllegalArgumentException if it could take too long, or is not understood
   */
  static void check(String pattern) {
    SafePattern parser = new SafePattern(pattern);
    Cost cost = parser.alternatives();
    if (parser.at < pattern.length() || cost.retried > 1) {
      throw parser.refused();
    }
  }

  private IllegalArgumentException refused() {
    return new IllegalArgumentException(
        "the pattern %s could take too long on some texts".formatted(pattern));
  }

  private Cost alternatives() {
    Cost cost = sequence();
    while (at < pattern.length() && pattern.charAt(at) == '|') {
      at++;
      cost = cost.or(sequence());
    }
    return cost;
  }

  private Cost sequence() {
    Cost cost = Cost.NOTHING;
    while (at < pattern.length() && pattern.charAt(at) != '|' && pattern.charAt(at) != ')') {
      Cost part = repeated(part());
      cost = cost.then(part);
    }
    return cost;
  }

  private Cost part() {
    char c = pattern.charAt(at++);
    switch (c) {
      case '(' -> {
        boolean condition = skipGroupHead();
        Cost inner = alternatives();
        if (at == pattern.length()) {
          throw refused();
        }
        at++; // ')'
        return condition ? new Cost(inner.repetitions, inner.repetitions, false) : inner;
      }
      case '[' -> skipClass();
      case '\\' -> {
        if (at == pattern.length() || Character.isDigit(pattern.charAt(at))) {
          throw refused(); // a reference to a group
        }
        char escaped = pattern.charAt(at++);
        if ((escaped == 'p' || escaped == 'P' || escaped == 'x')
            && at < pattern.length()
            && pattern.charAt(at) == '{') {
          at = 1 + end('}');
        } else if (escaped == 'k' || escaped == 'g') {
          throw refused();
        }
      }
      case '*', '+', '?' -> throw refused();
      default -> {}
    }
    return new Cost(0, 0, false);
  }

  /** Returns whether the group only looks ahead or back. */
  private boolean skipGroupHead() {
    if (!pattern.startsWith("?", at)) {
      return false;
    }
    for (String look : new String[] {"?=", "?!", "?<=", "?<!"}) {
      if (pattern.startsWith(look, at)) {
        at += look.length();
        return true;
      }
    }
    if (pattern.startsWith("?>", at)) {
      at += 2;
      return false;
    }
    at++;
    while (at < pattern.length() && ":)".indexOf(pattern.charAt(at)) < 0) {
      if ("imsx-".indexOf(pattern.charAt(at)) < 0) {
        throw refused();
      }
      at++;
    }
    if (pattern.startsWith(":", at)) {
      at++;
    }
    return false;
  }

  private void skipClass() {
    int depth = 1;
    boolean first = true;
    while (depth > 0) {
      if (at == pattern.length()) {
        throw refused();
      }
      char c = pattern.charAt(at++);
      if (c == '\\') {
        at++;
      } else if (c == '[') {
        depth++;
      } else if (c == ']' && !first) {
        depth--;
      }
      first = first && c == '^';
    }
    at = Math.min(at, pattern.length());
  }

  private int end(char closing) {
    int end = pattern.indexOf(closing, at);
    if (end < 0) {
      throw refused();
    }
    return end;
  }

  /** A part with the quantifiers that follow it. */
  private Cost repeated(Cost part) {
    Cost cost = part;
    while (at < pattern.length() && "*+?{".indexOf(pattern.charAt(at)) >= 0) {
      char c = pattern.charAt(at++);
      boolean many = c == '*' || c == '+';
      boolean none = c == '*' || c == '?';
      if (c == '{') {
        int end = end('}');
        String[] bounds = pattern.substring(at, end).split(",", -1);
        at = end + 1;
        try {
          int least = bounds[0].isEmpty() ? 0 : Integer.parseInt(bounds[0]);
          String most = bounds[bounds.length - 1];
          many = most.isEmpty() || Integer.parseInt(most) >= UNBOUNDED || least >= UNBOUNDED;
          none = least == 0;
        } catch (NumberFormatException e) {
          throw refused();
        }
      }
      if (many && cost.repetitions > 0) {
        if (c == '+'
            && pattern.charAt(at - 2) != ')'
            && "*+?}".indexOf(pattern.charAt(at - 2)) >= 0) {
          continue; // possessive: it takes nothing back
        }
        throw refused();
      }
      cost = new Cost(cost.repetitions + (many ? 1 : 0), cost.retried, cost.optional || none);
    }
    return cost;
  }
}
