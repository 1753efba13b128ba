package dev.loupe.text;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.io.IOException;
import java.util.HexFormat;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

class LabelsTest {
  private static Tokenizer gpt2;

  @BeforeAll
  static void open() throws IOException {
    gpt2 = Tokenizer.open(TestData.GPT2);
  }

  @AfterAll
  static void close() {
    gpt2.close();
  }

  private static List<String> labels(String text) {
    return Labels.of(gpt2, gpt2.encode(text, true));
  }

  private static String label(String hex) {
    return Labels.label(HexFormat.of().parseHex(hex));
  }

  @Test
  void textSpacesAndBreaks() {
    assertEquals(
        List.of("The", "·king", "\\n", "\\t", "\\r", "<|endoftext|>"),
        labels("The king\n\t\r<|endoftext|>"));
    assertEquals("···", Labels.label("   ".getBytes(UTF_8)));
    assertEquals("··a b ", Labels.label("  a b ".getBytes(UTF_8)));
    assertEquals("\\n·", Labels.label("\n ".getBytes(UTF_8)).replace(' ', '·'));
    assertEquals("é", Labels.label("é".getBytes(UTF_8)));
    assertEquals("·Ġ", Labels.label(" Ġ".getBytes(UTF_8))); // a real one, not a spelled space
  }

  @Test
  void partsOfCharacters() {
    assertEquals(List.of("·<F0 9F 98>", "<80>"), labels(" 😀"));
    assertEquals("<E2 82>", label("E282"));
    assertEquals("a<E2>", label("61E2"));
    assertEquals("<82 AC>a", label("82AC61"));
    assertEquals("<82 E2>", label("82E2"));
    assertEquals("é<FF>é", label("C3A9FFC3A9"));
    assertEquals("<EF BF BD>", label("EFBFBD")); // a real U+FFFD
    assertEquals("<ED A0 80>", label("EDA080"));
  }

  @Test
  void whatCannotBeSeenIsEscaped() {
    assertEquals("\\x00", label("00"));
    assertEquals("\\x1B[0m", label("1B5B306D"));
    assertEquals("\\x7F", label("7F"));
    assertEquals("\\x85\\xA0\\xAD", label("C285C2A0C2AD"));
    assertEquals(
        "\\u200B\\u202E\\u2028\\u3000\\uFEFF",
        Labels.label("\u200B\u202E\u2028\u3000\uFEFF".getBytes(UTF_8)));
    assertEquals("\\U000E0001", Labels.label("\uDB40\uDC01".getBytes(UTF_8)));
  }

  @Test
  void everyTokenHasALabelWithoutReplacementsOrSpelledBytes() {
    for (int id = 0; id < gpt2.size(); id++) {
      String label = Labels.label(gpt2, id);
      assertFalse(label.isEmpty());
      assertEquals(label, Labels.of(gpt2, new int[] {5822, id, 222}).get(1));
      int finalId = id;
      assertFalse(label.codePoints().anyMatch(c -> c < ' ' || c == 0xFFFD), () -> "id " + finalId);
      boolean realG = new String(gpt2.bytes(id), UTF_8).contains("Ġ");
      assertEquals(realG, label.contains("Ġ"), () -> "id " + finalId);
    }
  }
}
