package dev.loupe;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.attention.AttentionSelection;
import dev.loupe.generate.AttentionRows;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.sampling.Sampling;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Requests that do not fit the context or the model, and texts that slide through the context. */
class LoupeContextTest extends LoupeFixture {
  @Test
  void contextIsEnforced() {
    String long300 = "a b c d e f g h i j ".repeat(30);
    refused(r -> {}, GenerateRequest.text(long300), "331 tokens", "256", "by 75");
    refused(r -> r.tokens(252), GenerateRequest.text("ROMEO:"), "6 prompt", "251");
    refused(
        r -> r.tokens(251).attention(AttentionSelection.all()),
        GenerateRequest.text("ROMEO:"),
        "250");
    assertEquals(
        256,
        one(GenerateRequest.text("ROMEO:")
                .tokens(250)
                .sampling(Sampling.seeded(1))
                .attention(AttentionSelection.all().layers(0)))
            .attention()
            .tokens(),
        "exactly full is fine, the last row included");
    int[] full = new int[256];
    refused(r -> r.attention(AttentionSelection.all()), GenerateRequest.ids(full), "room for 0");
    refused(r -> r.readAgain(true), GenerateRequest.ids(full), "room for 0", "read");
    refused(r -> {}, GenerateRequest.ids(new int[257]), "by 1");
    assertEquals(256, one(GenerateRequest.ids(full).tokens(0)).tokens().size());
  }

  @Test
  void requestsThatDoNotFitTheModelAreRefused() {
    refused(r -> {}, GenerateRequest.ids(5, 1024), "1024", "0..1023");
    refused(r -> {}, GenerateRequest.ids(-1), "-1");
    refused(
        r -> r.attention(AttentionSelection.all().layers(6)),
        GenerateRequest.text("a"),
        "layer 6",
        "0..5");
    refused(
        r -> r.attention(AttentionSelection.all().heads(0, 3)),
        GenerateRequest.text("a"),
        "head 3",
        "0..2");
    refused(r -> r.stops(List.of("")), GenerateRequest.text("a"), "stop");
    assertThrows(IllegalArgumentException.class, () -> GenerateRequest.text("a").tokens(-1));
    assertThrows(IllegalArgumentException.class, () -> GenerateRequest.text("a").samples(0));
    assertThrows(IllegalArgumentException.class, () -> GenerateRequest.text("a").logprobs(-1));
    assertThrows(IllegalArgumentException.class, () -> AttentionSelection.all().layers());
  }

  @Test
  void slidingForgetsTheOlderHalfAndSaysSo() {
    GenerateRequest request =
        GenerateRequest.text("ROMEO:")
            .tokens(400)
            .sampling(Sampling.seeded(3))
            .slide(true)
            .attention(AttentionSelection.all().layers(0, 5).withStatistics(4));
    Generation run = one(request);
    AttentionRows.close(run.attention(), run.statistics().orElseThrow(), 1e-6);
    int t = run.tokens().size();
    assertEquals(406, t);
    // full at 256, 128 are kept: 128 dropped; full again at 384: 256 dropped
    assertEquals(256, run.cropped());
    for (int q = 0; q < t; q++) {
      float[] row = run.attention().row(5, 1, q);
      double sum = 0;
      for (float p : row) {
        sum += p;
      }
      assertEquals(1, sum, 1e-5, "row " + q);
      int dropped = q < 256 ? 0 : q < 384 ? 128 : 256;
      for (int k = 0; k < dropped; k++) {
        assertEquals(0, row[k], "a forgotten token was not read");
      }
    }
    // What follows depends on the kept tokens alone.
    int[] kept = Arrays.copyOfRange(ids(run), 256, 390);
    Generation again = one(GenerateRequest.ids(kept).tokens(0).attention(AttentionSelection.all()));
    float[] expected = again.attention().row(5, 1, 133);
    float[] actual = Arrays.copyOfRange(run.attention().row(5, 1, 389), 256, 390);
    assertArrayEquals(expected, actual);
  }

  @Test
  void slidingTakesAPromptLongerThanTheContext() {
    Generation run =
        one(
            GenerateRequest.text("a b c d e f g h i j ".repeat(30))
                .tokens(5)
                .slide(true)
                .logprobs(0)
                .sampling(Sampling.greedy()));
    assertTrue(run.cropped() >= 44, "cropped " + run.cropped());
    assertEquals(run.promptLength() + 5, run.tokens().size());
    refused(
        r -> r.slide(true).attention(AttentionSelection.all()),
        GenerateRequest.text("a b c d e f g h i j ".repeat(30)),
        "attention");
  }
}
