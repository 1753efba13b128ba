package dev.loupe.cuda.ptx.text;

/** Constants as they are written. */
public final class Literals {
  private Literals() {}

  public static boolean isOne(String text) {
    char first = text.charAt(text.startsWith("-") ? Math.min(1, text.length() - 1) : 0);
    return Character.isDigit(first);
  }

  /**
   * The bits of a constant: {@code 0f3F800000} of a float, {@code 0d...} of a double, or an integer
   * of 64 bits.
   */
  public static long parse(String text, int line) {
    try {
      if (text.startsWith("0f") || text.startsWith("0F")) {
        return Long.parseLong(text, 2, 10, 16);
      }
      if (text.startsWith("0d") || text.startsWith("0D")) {
        return Long.parseUnsignedLong(text, 2, 18, 16);
      }
      boolean negative = text.startsWith("-");
      String digits = text.substring(negative ? 1 : 0).replaceAll("U$", "");
      long value =
          digits.startsWith("0x") || digits.startsWith("0X")
              ? Long.parseUnsignedLong(digits.substring(2), 16)
              : digits.length() > 1 && digits.startsWith("0")
                  ? Long.parseUnsignedLong(digits.substring(1), 8)
                  : Long.parseUnsignedLong(digits);
      return negative ? -value : value;
    } catch (NumberFormatException | IndexOutOfBoundsException e) {
      throw new PtxException("line %d: %s is no constant".formatted(line, text), e);
    }
  }
}
