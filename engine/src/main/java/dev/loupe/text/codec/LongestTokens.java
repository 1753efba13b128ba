package dev.loupe.text.codec;

import static java.nio.charset.StandardCharsets.UTF_8;

import dev.loupe.weights.vocabulary.ByteAlphabet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.stream.LongStream;

/**
 * Cuts text into the longest tokens from its beginning on: what a vocabulary without merges is for.
 * With one of characters, as those that nanoGPT makes of small texts, each gives one token.
 */
final class LongestTokens implements Encoder {
  private final Map<String, Integer> ids;
  private final List<Integer> lengths; // of tokens, the longest first
  private volatile boolean closed; // frees nothing, but is to be seen as with the other

  /**
   * @param ids of tokens spelled in {@link ByteAlphabet}
   */
  LongestTokens(Map<String, Integer> ids) {
    this.ids = new HashMap<>(ids);
    this.ids.remove("");
    TreeSet<Integer> ascending = new TreeSet<>();
    this.ids.keySet().forEach(token -> ascending.add(token.length()));
    lengths = List.copyOf(ascending.descendingSet());
  }

  @Override
  public long[] encode(String text) {
    if (closed) {
      throw new IllegalStateException("tokenizer is closed");
    }
    StringBuilder spelled = new StringBuilder();
    for (byte b : text.getBytes(UTF_8)) {
      spelled.append(ByteAlphabet.symbol(b & 0xFF));
    }
    LongStream.Builder found = LongStream.builder();
    int at = 0;
    while (at < spelled.length()) {
      int end = at;
      for (int length : lengths) {
        Integer id =
            length > spelled.length() - at ? null : ids.get(spelled.substring(at, at + length));
        if (id != null) {
          found.accept(id);
          end = at + length;
          break;
        }
      }
      if (end == at) {
        throw new IllegalArgumentException(
            "the tokenizer has no token for U+%04X of the text".formatted(character(text, at)));
      }
      at = end;
    }
    return found.build().toArray();
  }

  /** The code point of which byte {@code at} of the UTF-8 is a part. */
  private static int character(String text, int at) {
    int bytes = 0;
    for (int c : text.codePoints().toArray()) {
      bytes += Character.toString(c).getBytes(UTF_8).length;
      if (bytes > at) {
        return c;
      }
    }
    throw new AssertionError(at);
  }

  @Override
  public void close() {
    closed = true;
  }
}
