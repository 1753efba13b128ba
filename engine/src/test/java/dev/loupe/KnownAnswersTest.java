package dev.loupe;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.loupe.attention.AttentionMaps;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.model.Golden;
import dev.loupe.sampling.Sampling;
import dev.loupe.text.Tokenizer;
import java.io.IOException;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;

/**
 * What others have seen official GPT-2 124M do. Its weights aren't part of the checkout: the tests
 * that need them run where {@code LOUPE_GPT2} names a folder with them ({@code loupe weights pull
 * openai-community/gpt2 DIR} makes one), and are reported as skipped elsewhere.
 */
class KnownAnswersTest {
  private static final String TOM = "hello, this is Tom .";
  private static final int[] TOM_IDS = {31373, 11, 428, 318, 4186, 764};

  /** To four digits, as they were published. */
  private static final float[] TOM_ATTENTION = {.6496f, .0758f, .0439f, .0328f, .0853f, .1125f};

  private static final float TOLERANCE = 1e-3f; // they were given with an "about"

  private static Loupe official() throws IOException {
    String folder = System.getenv("LOUPE_GPT2");
    assumeTrue(
        folder != null && !folder.isEmpty(),
        "LOUPE_GPT2 is not set: the official GPT-2 124M weights are not here");
    return Loupe.open(Path.of(folder), Options.defaults().backend(Backend.CPU));
  }

  private static void assertTokenizes(Tokenizer tokenizer) {
    assertArrayEquals(new int[] {15496, 995}, tokenizer.encode("Hello world", false));
    assertArrayEquals(TOM_IDS, tokenizer.encode(TOM, false));
    assertEquals("Hello world", tokenizer.decode(new int[] {15496, 995}));
  }

  @Test
  void theTokenizerOfTheCheckoutGivesTheKnownIds() throws IOException {
    try (Tokenizer tokenizer = Tokenizer.open(Golden.TEST_DATA.resolve("gpt2"))) {
      assertTokenizes(tokenizer);
    }
  }

  @Test
  void theTokenizerOfTheOfficialModelGivesTheKnownIds() throws IOException {
    try (Loupe loupe = official()) {
      assertTokenizes(loupe.tokenizer());
    }
  }

  @Test
  void theOfficialModelGoesOnAsKnown() throws IOException {
    try (Loupe loupe = official()) {
      String text =
          loupe
              .generate(
                  "Alan Turing theorized that computers would one day become",
                  Sampling.greedy(),
                  8,
                  AttentionSelection.all().layers(0).heads(0))
              .text();
      assertTrue(text.startsWith(" the most powerful machines on the planet."), text);
    }
  }

  @Test
  void theOfficialModelsLastTokenReadsAsKnown() throws IOException {
    try (Loupe loupe = official()) {
      AttentionMaps maps = loupe.read(TOM, AttentionSelection.all().layers(11)).attention();
      int heads = loupe.info().config().nHead();
      float[] mean = new float[TOM_IDS.length];
      for (int head = 0; head < heads; head++) {
        float[] row = maps.row(11, head, TOM_IDS.length - 1);
        for (int key = 0; key < mean.length; key++) {
          mean[key] += row[key] / heads;
        }
      }
      assertArrayEquals(TOM_ATTENTION, mean, TOLERANCE);
    }
  }
}
