package dev.loupe.text.codec;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.Test;

class Utf8Test {
  private static String decode(byte[] bytes) {
    StringBuilder text = new StringBuilder();
    for (int at = 0; at < bytes.length; ) {
      int next = Utf8.next(bytes, at);
      String character = "\uFFFD";
      if (next > 0) {
        character = new String(bytes, at, next, UTF_8);
        assertEquals(1, character.codePointCount(0, character.length()));
        assertArrayEquals(Arrays.copyOfRange(bytes, at, at + next), character.getBytes(UTF_8));
      }
      text.append(character);
      at += Math.abs(next);
    }
    return text.toString();
  }

  @Test
  void cutsCharactersWhereTheJdkDoes() {
    Random random = new Random(3);
    for (int round = 0; round < 50_000; round++) {
      byte[] bytes = NearlyUtf8.bytes(random, random.nextInt(7));
      assertEquals(new String(bytes, UTF_8), decode(bytes), () -> Arrays.toString(bytes));
    }
  }

  @Test
  void everyPairOfBytes() {
    for (int pair = 0; pair < 0x10000; pair++) {
      byte[] bytes = {(byte) (pair >> 8), (byte) pair};
      assertEquals(new String(bytes, UTF_8), decode(bytes), () -> Arrays.toString(bytes));
    }
  }
}
