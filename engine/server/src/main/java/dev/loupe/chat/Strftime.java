package dev.loupe.chat;

import java.time.LocalDateTime;
import java.time.ZoneId;
import java.time.format.DateTimeFormatterBuilder;
import java.util.Locale;

/** The time, written as C's strftime writes it. */
final class Strftime {
  private Strftime() {}

  /** {@code strftime_now} of a template: the usual letters of C's strftime, in English. */
  public static String now(String format) {
    DateTimeFormatterBuilder pattern = new DateTimeFormatterBuilder();
    boolean afterPercent = false;
    for (int i = 0; i < format.length(); i++) {
      char c = format.charAt(i);
      if (!afterPercent) {
        afterPercent = c == '%';
        if (!afterPercent) {
          pattern.appendLiteral(c);
        }
        continue;
      }
      afterPercent = false;
      pattern.appendPattern(
          switch (c) {
            case 'Y' -> "uuuu";
            case 'y' -> "uu";
            case 'm' -> "MM";
            case 'd' -> "dd";
            case 'b' -> "MMM";
            case 'B' -> "MMMM";
            case 'a' -> "EEE";
            case 'A' -> "EEEE";
            case 'H' -> "HH";
            case 'I' -> "hh";
            case 'M' -> "mm";
            case 'S' -> "ss";
            case 'p' -> "a";
            case 'j' -> "DDD";
            case '%' -> "'%'";
            default -> throw new IllegalArgumentException("strftime_now has no %" + c);
          });
    }
    return LocalDateTime.now(ZoneId.systemDefault()).format(pattern.toFormatter(Locale.ENGLISH));
  }
}
