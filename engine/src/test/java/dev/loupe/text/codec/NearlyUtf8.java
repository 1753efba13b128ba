package dev.loupe.text.codec;

import java.util.Random;

/** Bytes that are often, but not always, UTF-8: leads, continuations and edges of all ranges. */
public final class NearlyUtf8 {
  private NearlyUtf8() {}

  public static byte[] bytes(Random random, int length) {
    int[] edges = {
      0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1,
      0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xF8, 0xFE, 0xFF
    };
    byte[] bytes = new byte[length];
    for (int i = 0; i < length; i++) {
      bytes[i] =
          (byte)
              (random.nextInt(3) == 0
                  ? 0x80 + random.nextInt(64)
                  : edges[random.nextInt(edges.length)]);
    }
    return bytes;
  }
}
