package dev.loupe.text;

import static java.nio.charset.StandardCharsets.UTF_8;

import dev.loupe.text.codec.Utf8;
import java.io.ByteArrayOutputStream;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;

/**
 * The code points of the decoded text that a token touches. A character whose bytes are spread over
 * several tokens is touched by each of them.
 *
 * @param start index of the first code point
 * @param end one past the last; {@code start} for a token that adds nothing to the text
 */
public record CharSpan(int start, int end) {

  public CharSpan {
    if (start < 0 || end < start) {
      throw new IllegalArgumentException("no span: [%d, %d)".formatted(start, end));
    }
  }

  /**
   * The span of each token in {@link Tokenizer#decode} of all of them, without special tokens.
   *
   * @throws IllegalArgumentException if no token has one of the ids
   */
  public static List<CharSpan> of(Tokenizer tokenizer, int[] ids) {
    return of(tokenizer, ids, false);
  }

  /**
   * Likewise.
   *
   * @param special whether special tokens are part of the text
   */
  public static List<CharSpan> of(Tokenizer tokenizer, int[] ids, boolean special) {
    ByteArrayOutputStream text = new ByteArrayOutputStream();
    TextBytes bytes = new TextBytes(tokenizer, special);
    int[] ends = new int[ids.length]; // in bytes
    for (int i = 0; i < ids.length; i++) {
      text.writeBytes(bytes.next(ids[i]));
      ends[i] = text.size();
    }
    int[] characters = characterOfEachByte(text.toByteArray());
    List<CharSpan> spans = new ArrayList<>(ids.length);
    int start = 0;
    for (int end : ends) {
      int first = characters[start];
      spans.add(new CharSpan(first, end == start ? first : characters[end - 1] + 1));
      start = end;
    }
    if (tokenizer.cleansUp()) {
      int[] kept = keptBefore(text.toString(UTF_8));
      spans.replaceAll(span -> new CharSpan(kept[span.start], kept[span.end]));
    }
    return spans;
  }

  /** [code points + 1]: how many code points before each are not taken out as spaces. */
  private static int[] keptBefore(String text) {
    BitSet gone = CleanUp.spaces(text);
    int[] kept = new int[text.codePointCount(0, text.length()) + 1];
    for (int at = 0, c = 0; at < text.length(); c++) {
      kept[c + 1] = kept[c] + (gone.get(at) ? 0 : 1);
      at += Character.charCount(text.codePointAt(at));
    }
    return kept;
  }

  /** [bytes + 1]: the index of the code point that a byte is part of; their number at the end. */
  private static int[] characterOfEachByte(byte[] bytes) {
    int[] characters = new int[bytes.length + 1];
    int count = 0;
    for (int at = 0; at < bytes.length; count++) {
      int end = at + Math.abs(Utf8.next(bytes, at));
      while (at < end) {
        characters[at++] = count;
      }
    }
    characters[bytes.length] = count;
    return characters;
  }
}
