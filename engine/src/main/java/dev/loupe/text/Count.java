package dev.loupe.text;

/** A number of things in words. */
public final class Count {
  private Count() {}

  /** For example {@code 1 token} or {@code 12 tokens}. */
  public static String of(long number, String thing) {
    return number == 1 ? "1 " + thing : number + " " + thing + "s";
  }
}
