package dev.loupe.text;

import static java.nio.charset.StandardCharsets.UTF_8;

import dev.loupe.text.codec.Utf8;
import java.util.Arrays;
import java.util.List;

/**
 * What to show a person for a token: its text where its bytes are whole characters, {@code <E2 82>}
 * where they are only part of one. Spaces at the front show as {@code ·}, a newline as {@code \n};
 * whatever else can't be seen is escaped: {@code \t}, {@code \x1B}, {@code \u200B}. A label is for
 * reading only; the exact bytes are in {@link Tokenizer#bytes}. Where only the id of a token is
 * known, the label is that.
 */
public final class Labels {
  private static final int REPLACEMENT = 0xFFFD;

  private Labels() {}

  /**
   * The label of each token of a sequence. Neighbours make no difference: UTF-8 synchronizes
   * itself, so the bytes of a whole character are one whatever stands before and after.
   *
   * @throws IllegalArgumentException if no token has one of the ids
   */
  public static List<String> of(Tokenizer tokenizer, int[] ids) {
    return Arrays.stream(ids).mapToObj(id -> label(tokenizer, id)).toList();
  }

  /**
   * The label of one token.
   *
   * @throws IllegalArgumentException if no token has this id
   */
  public static String label(Tokenizer tokenizer, int id) {
    return tokenizer.label(id);
  }

  /** The label of a token of these bytes. */
  static String label(byte[] bytes) {
    StringBuilder label = new StringBuilder();
    int at = 0;
    while (at < bytes.length && bytes[at] == ' ') {
      label.append('·');
      at++;
    }
    while (at < bytes.length) {
      int length = Utf8.next(bytes, at);
      int codePoint = length > 0 ? new String(bytes, at, length, UTF_8).codePointAt(0) : -1;
      if (codePoint < 0 || codePoint == REPLACEMENT) {
        int start = at;
        at += Math.abs(length);
        while (at < bytes.length && Utf8.next(bytes, at) < 0) {
          at -= Utf8.next(bytes, at);
        }
        appendHex(label, bytes, start, at);
      } else {
        appendVisible(label, codePoint);
        at += length;
      }
    }
    return label.toString();
  }

  private static void appendHex(StringBuilder label, byte[] bytes, int start, int end) {
    for (int i = start; i < end; i++) {
      label.append(i == start ? '<' : ' ').append("%02X".formatted(bytes[i] & 0xFF));
    }
    label.append('>');
  }

  private static void appendVisible(StringBuilder label, int codePoint) {
    switch (codePoint) {
      case '\n' -> label.append("\\n");
      case '\t' -> label.append("\\t");
      case '\r' -> label.append("\\r");
      default -> {
        if (codePoint == ' ' || isVisible(codePoint)) {
          label.appendCodePoint(codePoint);
        } else if (codePoint < 0x100) {
          label.append("\\x%02X".formatted(codePoint));
        } else {
          label.append((codePoint < 0x10000 ? "\\u%04X" : "\\U%08X").formatted(codePoint));
        }
      }
    }
  }

  /** Not a control, format or unassigned character, nor a space or line break of any width. */
  private static boolean isVisible(int codePoint) {
    return switch (Character.getType(codePoint)) {
      case Character.CONTROL,
          Character.FORMAT,
          Character.UNASSIGNED,
          Character.SPACE_SEPARATOR,
          Character.LINE_SEPARATOR,
          Character.PARAGRAPH_SEPARATOR ->
          false;
      default -> true;
    };
  }
}
