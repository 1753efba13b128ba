package dev.loupe.text;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

class CharSpanTest {
  private static Tokenizer gpt2;

  @BeforeAll
  static void open() throws IOException {
    gpt2 = Tokenizer.open(TestData.GPT2);
  }

  @AfterAll
  static void close() {
    gpt2.close();
  }

  private static List<CharSpan> spans(int... ids) {
    return CharSpan.of(gpt2, ids);
  }

  @Test
  void countsCodePointsAndSharesSplitCharacters() {
    assertEquals(List.of(), spans());
    assertEquals(
        List.of(new CharSpan(0, 3), new CharSpan(3, 8)), spans(464, 5822)); // "The", " king"
    // " " + 3 bytes of the emoji, its last byte, "a"
    assertEquals(
        List.of(new CharSpan(0, 2), new CharSpan(1, 2), new CharSpan(2, 3)), spans(30325, 222, 64));
  }

  @Test
  void specialTokensTouchNothing() {
    assertEquals(
        List.of(new CharSpan(0, 0), new CharSpan(0, 1), new CharSpan(1, 1)),
        spans(50256, 64, 50256));
    // even in the midst of a character
    assertEquals(
        List.of(new CharSpan(0, 1), new CharSpan(0, 0), new CharSpan(0, 1)),
        spans(47249, 50256, 222));
  }

  @Test
  void brokenCharactersCountAsOne() {
    // three bytes of an emoji, never finished; "a"; a stray continuation byte
    assertEquals(
        List.of(new CharSpan(0, 1), new CharSpan(1, 2), new CharSpan(2, 3)), spans(47249, 64, 222));
  }

  @Test
  void spansOfRandomTokensCoverTheTextInOrder() {
    Random random = new Random(5);
    for (int round = 0; round < 2_000; round++) {
      // among the first 256 ids are all single bytes, so characters break in every way
      int[] ids = random.ints(random.nextInt(9), 0, 300).toArray();
      String text = gpt2.decode(ids);
      List<CharSpan> spans = spans(ids);
      int end = 0;
      for (int i = 0; i < ids.length; i++) {
        CharSpan span = spans.get(i);
        assertEquals(true, span.start() == end || span.start() == end - 1, spans::toString);
        assertEquals(true, span.end() >= end && span.end() > span.start(), spans::toString);
        end = span.end();
      }
      assertEquals(text.codePointCount(0, text.length()), end, spans::toString);
    }
  }

  @Test
  void impossibleSpansAreRefused() {
    assertThrows(IllegalArgumentException.class, () -> new CharSpan(2, 1));
    assertThrows(IllegalArgumentException.class, () -> new CharSpan(-1, 1));
  }
}
