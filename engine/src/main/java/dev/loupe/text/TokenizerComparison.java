package dev.loupe.text;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Optional;

/**
 * Whether two tokenizers give the same ids: tried on texts that the settings of tokenizers treat
 * differently, and on tokens of their own vocabulary.
 */
public final class TokenizerComparison {
  private static final int MOST_TOKENS = 2000;
  private static final List<String> TEXTS =
      List.of(
          "Hello world",
          " Hello",
          "hello  world\n\n two",
          "I'll I'LL we've don't",
          "12345 67 3.14",
          "naïve café e\u0301 Å ﬁ ① Ａ１",
          "你好 world 再见。吾輩は猫である。안녕하세요",
          "UPPER lower",
          "trailing space ",
          "a\u3000b\u00a0c\td\r\ne",
          "😀 ok 👩‍👩‍👧",
          "<|endoftext|> <s> </s> [CLS] [SEP] <unk> <0x41>");

  private TokenizerComparison() {}

  /** The first difference as part of a sentence; empty if none was found. */
  public static Optional<String> first(Tokenizer before, Tokenizer after) {
    if (!Arrays.equals(before.front(), after.front())) {
      return Optional.of("another token is put in front of a text");
    }
    if (before.size() != after.size()) {
      return Optional.of(
          "it has %d tokens and would have %d".formatted(before.size(), after.size()));
    }
    List<String> texts = new ArrayList<>(TEXTS);
    int step = Math.max(1, before.size() / MOST_TOKENS);
    for (int id = 0; id < before.size(); id++) {
      if (before.contains(id) != after.contains(id)
          || before.isSpecial(id) != after.isSpecial(id)) {
        return Optional.of("token %d is of another kind".formatted(id));
      }
      if (before.contains(id) && !Arrays.equals(before.bytes(id), after.bytes(id))) {
        return Optional.of("token %d stands for another text".formatted(id));
      }
      if (before.isAdded(id)) {
        String token = before.raw(id);
        texts.add("a %s b %sc%s".formatted(token, token, token.toUpperCase(Locale.ROOT)));
      } else if (before.contains(id) && id % step == 0) {
        texts.add(before.decode(new int[] {id}));
      }
    }
    for (String text : texts) {
      for (boolean special : new boolean[] {false, true}) {
        if (!Arrays.equals(ids(before, text, special), ids(after, text, special))) {
          return Optional.of("the text %s gets other ids".formatted(shown(text)));
        }
      }
    }
    return Optional.empty();
  }

  /** A text's ids; none where a tokenizer has none for it. */
  private static int[] ids(Tokenizer tokenizer, String text, boolean special) {
    try {
      return tokenizer.encode(text, special);
    } catch (IllegalArgumentException e) {
      return new int[] {-1};
    }
  }

  private static String shown(String text) {
    StringBuilder shown = new StringBuilder("\"");
    text.codePoints()
        .limit(40)
        .forEach(c -> shown.appendCodePoint(Character.isISOControl(c) ? ' ' : c));
    return shown.append('"').toString();
  }
}
