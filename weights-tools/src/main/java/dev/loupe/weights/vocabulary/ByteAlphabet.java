package dev.loupe.weights.vocabulary;

import java.util.Arrays;

/**
 * GPT-2's alphabet of bytes: a byte-level vocabulary spells each of the 256 bytes as one printable
 * character. The 188 bytes that print in Latin-1 stand for themselves; the others, in ascending
 * order, are U+0100, U+0101, ... U+0143 (so a space, 0x20, is {@code Ġ}).
 *
 * <p>Source: {@code bytes_to_unicode} in OpenAI's gpt-2, src/encoder.py.
 */
public final class ByteAlphabet {
  private static final char[] SYMBOL = new char[256];
  private static final short[] BYTE = new short[0x144];

  static {
    Arrays.fill(BYTE, (short) -1);
    int next = 0x100;
    for (int b = 0; b < 256; b++) {
      boolean printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xFF && b != 0xAD);
      SYMBOL[b] = (char) (printable ? b : next++);
      BYTE[SYMBOL[b]] = (short) b;
    }
  }

  private ByteAlphabet() {}

  /** The character that spells byte {@code b}, 0..255. */
  public static char symbol(int b) {
    return SYMBOL[b];
  }

  /** The spelling of {@code bytes}. */
  public static String spell(byte[] bytes) {
    StringBuilder spelling = new StringBuilder(bytes.length);
    for (byte b : bytes) {
      spelling.append(SYMBOL[b & 0xFF]);
    }
    return spelling.toString();
  }

  /** The byte that {@code symbol} spells, 0..255, or -1 if it spells none. */
  public static int byteOf(char symbol) {
    return symbol < BYTE.length ? BYTE[symbol] : -1;
  }
}
