package dev.loupe.text;

import java.util.Locale;

/** A number of things in words. */
public final class Count {
  private Count() {}

  /** For example {@code 1 token} or {@code 12 tokens}. */
  public static String of(long number, String thing) {
    return number == 1 ? "1 " + thing : number + " " + thing + "s";
  }

  /** Likewise for large ones: {@code 1 window} or {@code 12,345 windows}. */
  public static String grouped(long number, String thing) {
    return String.format(Locale.ROOT, "%,d %s%s", number, thing, number == 1 ? "" : "s");
  }
}
