package dev.loupe.text;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.text.codec.NearlyUtf8;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

class StreamDecoderTest {
  private static Tokenizer gpt2;

  @BeforeAll
  static void open() throws IOException {
    gpt2 = Tokenizer.open(TestData.GPT2);
  }

  @AfterAll
  static void close() {
    gpt2.close();
  }

  @Test
  void equalsDecodingAllBytesAtOnceHoweverTheyAreCut() {
    Random random = new Random(11);
    StreamDecoder decoder = new StreamDecoder(gpt2);
    for (int round = 0; round < 20_000; round++) {
      byte[] bytes = NearlyUtf8.bytes(random, random.nextInt(12));
      StringBuilder text = new StringBuilder();
      for (int at = 0; at < bytes.length; ) {
        int end = Math.min(bytes.length, at + random.nextInt(4));
        text.append(decoder.push(Arrays.copyOfRange(bytes, at, end)));
        at = end;
      }
      text.append(decoder.finish());
      assertEquals(new String(bytes, UTF_8), text.toString(), () -> Arrays.toString(bytes));
    }
  }

  @Test
  void charactersComeWhenTheirLastByteDoes() {
    StreamDecoder decoder = new StreamDecoder(gpt2);
    List<String> pieces = new ArrayList<>();
    for (int id : new int[] {2634, 30325, 222, 220, 168, 243, 230, 87}) {
      pieces.add(decoder.push(id));
    }
    pieces.add(decoder.finish());
    assertEquals(List.of("é", " ", "😀", " ", "", "", "안", "x", ""), pieces);
  }

  @Test
  void aCharacterLeftIncompleteBecomesOneReplacement() {
    StreamDecoder decoder = new StreamDecoder(gpt2);
    assertEquals(" ", decoder.push(30325)); // a space and three of an emoji's four bytes
    assertEquals("\uFFFD", decoder.finish());
    assertEquals("", decoder.finish());
    assertEquals("!", decoder.push(0)); // ready for another text
  }

  @Test
  void specialTokensAddNothingAndBreakNothing() {
    StreamDecoder decoder = new StreamDecoder(gpt2);
    assertEquals("", decoder.push(47249)); // three bytes of an emoji
    assertEquals("", decoder.push(50256));
    assertEquals("😀", decoder.push(222));
    assertEquals("😀", gpt2.decode(new int[] {47249, 50256, 222}));
  }
}
