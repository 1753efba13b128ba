package dev.loupe.text;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

class TokenizerCasesTest {
  private static final String FOLDERS = "dev.loupe.text.TokenizerCases#folders";

  private static int[] array(List<Integer> ids) {
    return ids.stream().mapToInt(Integer::intValue).toArray();
  }

  private static List<Integer> list(int[] ids) {
    return Arrays.stream(ids).boxed().toList();
  }

  @ParameterizedTest
  @MethodSource(FOLDERS)
  void idsAndText(Path folder) throws IOException {
    List<String> wrong = new ArrayList<>();
    try (Tokenizer tokenizer = Tokenizer.open(folder)) {
      for (TokenizerCases.Text text : TokenizerCases.texts(folder)) {
        List<Integer> ids = list(tokenizer.encode(text.text(), true));
        if (!text.ids().equals(ids)) {
          wrong.add("%s: %s".formatted(text, ids));
        }
        String decoded = tokenizer.decode(array(text.ids()), true);
        if (!text.decoded().equals(decoded)) {
          wrong.add("%s: <%s> <%s>".formatted(text.text(), text.decoded(), decoded));
        }
      }
      List<Integer> front = TokenizerCases.front(TokenizerCases.texts(folder));
      assertEquals(front, list(tokenizer.front()));
    }
    assertEquals(List.of(), wrong);
  }

  /** Token by token a text is the same as at once, and the places of the tokens are those in it. */
  @ParameterizedTest
  @MethodSource(FOLDERS)
  void streamsAndPlaces(Path folder) throws IOException {
    try (Tokenizer tokenizer = Tokenizer.open(folder)) {
      for (TokenizerCases.Text text : TokenizerCases.texts(folder)) {
        int[] ids = array(text.ids());
        StreamDecoder stream = new StreamDecoder(tokenizer, true);
        StringBuilder pieces = new StringBuilder();
        for (int id : ids) {
          pieces.append(stream.push(id));
        }
        pieces.append(stream.finish());
        assertEquals(text.decoded(), pieces.toString());
        int end = 0;
        for (CharSpan span : CharSpan.of(tokenizer, ids, true)) {
          assertEquals(true, span.start() <= end && span.end() >= end, () -> text.text());
          end = span.end();
        }
        assertEquals(text.decoded().codePointCount(0, text.decoded().length()), end);
        for (int cut = 1; cut < ids.length; cut++) { // a continuation, as a server shows it
          StreamDecoder later = new StreamDecoder(tokenizer, true);
          later.skip(Arrays.copyOf(ids, cut));
          StringBuilder rest = new StringBuilder();
          for (int id : Arrays.copyOfRange(ids, cut, ids.length)) {
            rest.append(later.push(id));
          }
          rest.append(later.finish());
          String begin = tokenizer.decode(Arrays.copyOf(ids, cut), true);
          if (!begin.endsWith("\uFFFD")) {
            assertEquals(text.decoded(), begin + rest);
          }
        }
      }
    }
  }
}
