package dev.loupe.export;

/** How many columns of a terminal a text takes, near enough for alignment. */
public final class TerminalText {
  /** Code point ranges that take two columns: East Asian Wide and Fullwidth (UAX 11), and emoji. */
  private static final int[][] WIDE = {
    {0x1100, 0x115F},
    {0x2E80, 0x303E},
    {0x3041, 0xA4CF},
    {0xA960, 0xA97F},
    {0xAC00, 0xD7A3},
    {0xF900, 0xFAFF},
    {0xFE30, 0xFE6F},
    {0xFF00, 0xFF60},
    {0xFFE0, 0xFFE6},
    {0x1F300, 0x1F64F},
    {0x1F680, 0x1F6FF},
    {0x1F900, 0x1FAFF},
    {0x20000, 0x3FFFD},
  };

  private static final int LONGEST_VALUE = 200;
  private static final int LONGEST_SENTENCE = 6000; // a path may have 4,096

  private TerminalText() {}

  /** Columns that {@code text} takes once {@link #safe}. */
  public static int width(String text) {
    return safe(text).codePoints().map(TerminalText::width).sum();
  }

  /** {@code text} made {@link #safe}, cut with an ellipsis or padded to {@code columns}. */
  public static String fit(String text, int columns) {
    String safe = safe(text);
    int width = width(safe);
    if (width <= columns) {
      return safe + " ".repeat(columns - width);
    }
    StringBuilder cut = new StringBuilder();
    int used = 0;
    for (int codePoint : safe.codePoints().toArray()) {
      used += width(codePoint);
      if (used > columns - 1) {
        used -= width(codePoint);
        break;
      }
      cut.appendCodePoint(codePoint);
    }
    return cut + "…" + " ".repeat(columns - 1 - used);
  }

  /** Control and direction characters, which would garble a terminal, as U+001B. */
  public static String safe(String text) {
    StringBuilder safe = new StringBuilder();
    text.codePoints()
        .forEach(
            c -> {
              int type = Character.getType(c);
              boolean acts =
                  type == Character.CONTROL
                      || type == Character.LINE_SEPARATOR
                      || type == Character.PARAGRAPH_SEPARATOR
                      || (type == Character.FORMAT && c != 0x200D); // emoji join with 200D
              if (acts) {
                safe.append("U+%04X".formatted(c));
              } else {
                safe.appendCodePoint(c);
              }
            });
    return safe.toString();
  }

  /**
   * A message as it may be shown: {@link #safe}, each quoted value of it no longer than {@value
   * #LONGEST_VALUE} characters, and not endless as a whole. What a file says may be in it.
   */
  public static String sentence(String message) {
    StringBuilder shown = new StringBuilder();
    int from = 0;
    for (int quote = message.indexOf('"'); quote >= 0; quote = message.indexOf('"', from)) {
      int end = message.indexOf('"', quote + 1);
      if (end < 0) {
        break;
      }
      shown.append(message, from, quote + 1);
      shown.append(cut(message.substring(quote + 1, end), LONGEST_VALUE)).append('"');
      from = end + 1;
    }
    shown.append(message, from, message.length());
    return safe(cut(shown.toString(), LONGEST_SENTENCE));
  }

  /** Keeps the beginning, and of what follows the number of characters. */
  private static String cut(String text, int most) {
    if (text.length() <= most) {
      return text;
    }
    int end = Character.isHighSurrogate(text.charAt(most - 1)) ? most - 1 : most;
    return "%s... (%d characters)".formatted(text.substring(0, end), text.length());
  }

  private static int width(int codePoint) {
    switch (Character.getType(codePoint)) {
      case Character.NON_SPACING_MARK, Character.ENCLOSING_MARK, Character.FORMAT -> {
        return 0;
      }
      default -> {}
    }
    for (int[] range : WIDE) {
      if (codePoint >= range[0] && codePoint <= range[1]) {
        return 2;
      }
    }
    return 1;
  }
}
