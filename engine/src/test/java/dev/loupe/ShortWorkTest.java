package dev.loupe;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Prompt;
import dev.loupe.generate.Token;
import dev.loupe.model.Golden;
import dev.loupe.sampling.Sampling;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Short work runs on plain loops, with the bits of vectors. */
class ShortWorkTest {
  private static Options cpu() {
    return Options.defaults().backend(Backend.CPU).threads(2);
  }

  private static String device(Options options) throws Exception {
    try (Loupe loupe = Loupe.open(Golden.DEMO_MODEL, options)) {
      return loupe.info().device();
    }
  }

  private static List<Token> written(Options options) throws Exception {
    try (Loupe loupe = Loupe.open(Golden.DEMO_MODEL, options)) {
      return loupe
          .run(GenerateRequest.text("ROMEO:").tokens(9).sampling(Sampling.greedy()).logprobs(3))
          .getFirst()
          .tokens();
    }
  }

  @Test
  void theAmountOfWorkChooses() throws Exception {
    assertTrue(device(cpu().expectedTokens(1)).contains("plain loops"));
    assertTrue(device(cpu().expectedTokens(100)).contains("plain loops"));
    for (Options options :
        List.of(cpu(), cpu().expectedTokens(1000), cpu().expectedTokens(1).vectorBits(128))) {
      assertTrue(device(options).contains("-bit vectors"), device(options));
    }
    assertThrows(IllegalArgumentException.class, () -> cpu().expectedTokens(-1));
  }

  @Test
  void theBitsAreTheSame() throws Exception {
    assertEquals(written(cpu()), written(cpu().expectedTokens(15)));
  }

  @Test
  void requestsSayHowMuch() {
    assertEquals(0, GenerateRequest.text("To be").expectedTokens(), "nobody knows");
    assertEquals(3 + 2 * 7, GenerateRequest.ids(1, 2, 3).tokens(7).samples(2).expectedTokens());
    assertEquals(4, Prompt.text("To be, or").expectedTokens());
  }
}
