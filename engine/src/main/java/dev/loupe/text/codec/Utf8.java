package dev.loupe.text.codec;

/** Where characters begin and end in bytes that need not be UTF-8. */
public final class Utf8 {
  private Utf8() {}

  /**
   * What a decoder makes of the bytes at {@code at}: n &gt; 0 for a character of n bytes, -n for n
   * bytes that it replaces by one U+FFFD. Those are the longest beginning of a character, else one
   * byte (The Unicode Standard 16.0, section 3.9, "U+FFFD substitution of maximal subparts"), but
   * for the three bytes of a surrogate, which the JDK replaces together.
   *
   * @param at an index into {@code bytes}, at which the previous character has ended
   */
  public static int next(byte[] bytes, int at) {
    int lead = bytes[at] & 0xFF;
    if (lead < 0x80) {
      return 1;
    }
    if (lead < 0xC2 || lead > 0xF4) {
      return -1;
    }
    int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    // the second byte is what rules out overlong forms and values above U+10FFFF
    int low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    int high = lead == 0xF4 ? 0x8F : 0xBF;
    for (int n = 1; n < length; n++) {
      int b = at + n < bytes.length ? bytes[at + n] & 0xFF : -1;
      if (b < low || b > high) {
        return -n;
      }
      low = 0x80;
      high = 0xBF;
    }
    boolean surrogate = lead == 0xED && (bytes[at + 1] & 0xFF) > 0x9F;
    return surrogate ? -length : length;
  }
}
