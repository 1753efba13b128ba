package dev.loupe.weights.vocabulary;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashSet;
import java.util.Set;
import org.junit.jupiter.api.Test;

class ByteAlphabetTest {
  @Test
  void everyByteHasASymbolOfItsOwnThatLeadsBack() {
    Set<Character> symbols = new HashSet<>();
    for (int b = 0; b < 256; b++) {
      assertTrue(symbols.add(ByteAlphabet.symbol(b)));
      assertEquals(b, ByteAlphabet.byteOf(ByteAlphabet.symbol(b)));
    }
  }

  @Test
  void nothingElseIsASymbol() {
    int symbols = 0;
    for (int c = 0; c < 0x10000; c++) {
      symbols += ByteAlphabet.byteOf((char) c) < 0 ? 0 : 1;
    }
    assertEquals(256, symbols);
  }

  @Test
  void symbolsAreThoseOfEncoderPy() {
    assertEquals('Ġ', ByteAlphabet.symbol(' '));
    assertEquals('Ċ', ByteAlphabet.symbol('\n'));
    assertEquals('ĉ', ByteAlphabet.symbol('\t'));
    assertEquals('Ā', ByteAlphabet.symbol(0));
    assertEquals('a', ByteAlphabet.symbol('a'));
    assertEquals('ġ', ByteAlphabet.symbol(0x7F));
    assertEquals('ł', ByteAlphabet.symbol(0xA0));
    assertEquals('Ń', ByteAlphabet.symbol(0xAD));
    assertEquals('ÿ', ByteAlphabet.symbol(0xFF));
  }
}
