package dev.loupe;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.attention.AttentionSelection;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Generation.Finish;
import dev.loupe.generate.Prompt;
import dev.loupe.generate.Token;
import dev.loupe.model.Golden;
import dev.loupe.ops.BackendException;
import dev.loupe.sampling.Sampling;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Whole runs on the demo model. */
class LoupeTest extends LoupeFixture {
  static List<Golden> prompts() {
    return Golden.all();
  }

  @ParameterizedTest
  @MethodSource("prompts")
  void greedyIdsAndLogprobsAreTheGoldenOnes(Golden golden) {
    int[] prompt = golden.ids();
    int[] expected = golden.ints("greedy_ids");
    Generation run =
        one(
            GenerateRequest.ids(prompt)
                .tokens(expected.length)
                .sampling(Sampling.greedy())
                .logprobs(2)
                .attention(AttentionSelection.all()));
    int[] all = ids(run);
    assertArrayEquals(prompt, Arrays.copyOf(all, prompt.length));
    assertArrayEquals(expected, Arrays.copyOfRange(all, prompt.length, all.length));
    if (expected.length > 0) {
      assertEquals(golden.meta().get("greedy_text").getAsString(), run.text());
    }
    assertTrue(Double.isNaN(run.tokens().getFirst().logprob()), "nothing precedes the first");
    for (int i = 1; i < prompt.length; i++) {
      double logprob = golden.meta().getAsJsonArray("logprobs").get(i).getAsDouble();
      assertEquals(logprob, run.tokens().get(i).logprob(), 2e-4, "logprob of token " + i);
    }
    for (Token token : run.tokens().subList(prompt.length, all.length)) {
      assertEquals(0, token.rank(), "greedy takes the most likely");
      assertEquals(token.id(), token.top().getFirst().id());
      assertEquals(token.logprob(), token.top().getFirst().logprob());
      assertTrue(token.generated());
    }
    for (int q = 0; q < all.length; q++) { // the last token's row is there too
      double sum = 0;
      for (float p : run.attention().row(5, 2, q)) {
        sum += p;
      }
      assertEquals(1, sum, 1e-5, "row " + q);
    }
  }

  @Test
  void samplesDifferAndEachEqualsItsOwnRun() {
    List<Generation> three =
        loupe.run(
            GenerateRequest.text("The")
                .tokens(20)
                .samples(3)
                .sampling(Sampling.seeded(11))
                .logprobs(1)
                .attention(AttentionSelection.all()));
    assertEquals(3, three.size());
    assertNotEquals(three.get(0).text(), three.get(1).text());
    assertNotEquals(three.get(1).text(), three.get(2).text());
    List<Generation> five =
        loupe.run(
            GenerateRequest.text("The")
                .tokens(20)
                .samples(5)
                .sampling(Sampling.seeded(11))
                .logprobs(1));
    for (int s = 0; s < 3; s++) {
      assertEquals(s, three.get(s).sample());
      assertEquals(
          five.get(s).tokens(), three.get(s).tokens(), "the batch around a sample changes no bit");
      Generation read =
          one(GenerateRequest.ids(ids(three.get(s))).tokens(0).attention(AttentionSelection.all()));
      for (int q = 0; q < read.tokens().size(); q++) {
        assertArrayEquals(read.attention().row(5, 1, q), three.get(s).attention().row(5, 1, q));
      }
    }
  }

  @Test
  void sameSeedSameText() {
    GenerateRequest request =
        GenerateRequest.text("QUEEN:").tokens(30).sampling(Sampling.seeded(8));
    assertEquals(one(request).tokens(), one(request).tokens());
    assertNotEquals(
        one(request).text(),
        one(GenerateRequest.text("QUEEN:").tokens(30).sampling(Sampling.seeded(9))).text());
  }

  @Test
  void stopStringsCutTheTextEvenInsideAToken() {
    Generation free = one(GenerateRequest.text("ROMEO:").tokens(24).sampling(Sampling.greedy()));
    assertEquals("\nWhat, I am a lord,\nWhat, I am a lord,\nW", free.text());
    Generation stopped =
        one(
            GenerateRequest.text("ROMEO:")
                .tokens(24)
                .sampling(Sampling.greedy())
                .stops(List.of("zzz", "hat, I am a l")));
    assertEquals("\nW", stopped.text());
    assertEquals(Finish.STOP, stopped.finish());
    Generation whole =
        one(
            GenerateRequest.text("ROMEO:")
                .tokens(24)
                .sampling(Sampling.greedy())
                .stops(List.of("zzz")));
    assertEquals(free.text(), whole.text(), "what was held back comes out at the end");
    assertEquals(Finish.LENGTH, whole.finish());
  }

  @Test
  void streamedPiecesAreTheText() {
    List<StringBuilder> heard = List.of(new StringBuilder(), new StringBuilder());
    List<Generation> runs =
        loupe.run(
            GenerateRequest.text("KING")
                .tokens(30)
                .samples(2)
                .sampling(Sampling.seeded(1))
                .listener(listener((sample, piece) -> heard.get(sample).append(piece) != null)));
    assertEquals(runs.get(0).text(), heard.get(0).toString());
    assertEquals(runs.get(1).text(), heard.get(1).toString());
  }

  private interface Heard {
    boolean text(int sample, String piece);
  }

  private static GenerateRequest.Listener listener(Heard heard) {
    return new GenerateRequest.Listener() {
      @Override
      public boolean text(int sample, String piece) {
        return heard.text(sample, piece);
      }
    };
  }

  @Test
  void aListenerCanEndARun() {
    List<String> pieces = new ArrayList<>();
    Generation run =
        one(
            GenerateRequest.text("ROMEO:")
                .tokens(50)
                .sampling(Sampling.greedy())
                .attention(AttentionSelection.all())
                .listener(listener((sample, piece) -> pieces.add(piece) && pieces.size() < 3)));
    assertEquals(Finish.INTERRUPTED, run.finish());
    assertEquals(String.join("", pieces), run.text());
    int t = run.tokens().size();
    assertEquals(t, run.attention().tokens(), "what was written has its maps");
    assertEquals(t, run.attention().row(0, 0, t - 1).length);
    assertTrue(run.attention().row(0, 0, t - 1)[0] > 0);
  }

  @Test
  void anInterruptEndsARunAndKeepsTheText() {
    Generation run =
        one(
            GenerateRequest.text("ROMEO:")
                .tokens(100)
                .sampling(Sampling.greedy())
                .listener(
                    listener(
                        (sample, piece) -> {
                          Thread.currentThread().interrupt();
                          return true;
                        })));
    assertFalse(Thread.interrupted(), "the interrupt was taken");
    assertEquals(Finish.INTERRUPTED, run.finish());
    assertFalse(run.text().isEmpty());
  }

  @Test
  void endedWhileReadingThePrompt() {
    assertThrows(
        CancellationException.class,
        () ->
            one(
                GenerateRequest.text("ROMEO:")
                    .listener(
                        new GenerateRequest.Listener() {
                          @Override
                          public boolean reading(int layersDone, int layers) {
                            return layersDone < 3;
                          }
                        })));
  }

  @Test
  void emptyPromptIsTheBeginningOfTextAndASpaceIsAPrompt() {
    Generation empty = one(GenerateRequest.text("").tokens(5).sampling(Sampling.greedy()));
    assertEquals(1, empty.promptLength());
    assertEquals(1023, empty.tokens().getFirst().id());
    assertTrue(empty.tokens().getFirst().special());
    Generation space = one(GenerateRequest.text(" ").tokens(0));
    assertEquals("·", space.tokens().getFirst().label());
    assertEquals("20", space.tokens().getFirst().bytes());
  }

  @Test
  void specialTokensInTextArePlainUnlessAsked() {
    Generation plain = one(GenerateRequest.text("a<|endoftext|>").tokens(0));
    assertTrue(plain.tokens().stream().noneMatch(Token::special));
    Generation special =
        one(GenerateRequest.of(Prompt.text("a<|endoftext|>").special(true)).tokens(0));
    assertEquals(1023, special.tokens().getLast().id());
    assertEquals("<|endoftext|>", special.tokens().getLast().label());
  }

  @Test
  void tokensCoverTheirText() {
    Generation run =
        one(GenerateRequest.text("naïve ☂ 한국").tokens(10).sampling(Sampling.seeded(2)));
    StringBuilder hex = new StringBuilder();
    run.tokens().forEach(token -> hex.append(token.bytes()));
    byte[] bytes = HexFormat.of().parseHex(hex);
    String text = new String(bytes, StandardCharsets.UTF_8);
    assertEquals("naïve ☂ 한국" + run.text(), text);
    int end = 0;
    for (Token token : run.tokens()) {
      assertTrue(token.charStart() <= end && token.charEnd() >= end, token.toString());
      end = token.charEnd();
    }
    assertEquals(text.codePointCount(0, text.length()), end);
  }

  @Test
  void threadsShareAModel() throws Exception {
    GenerateRequest request =
        GenerateRequest.text("ROMEO:").tokens(15).sampling(Sampling.seeded(5));
    String expected = one(request).text();
    try (ExecutorService pool = Executors.newFixedThreadPool(4)) {
      List<Future<String>> texts = new ArrayList<>();
      for (int i = 0; i < 12; i++) {
        texts.add(pool.submit(() -> one(request).text()));
      }
      for (Future<String> text : texts) {
        assertEquals(expected, text.get());
      }
    }
  }

  @Test
  void useAfterCloseIsAnErrorNotACrash() throws Exception {
    Loupe closed = Loupe.open(Golden.DEMO_MODEL, Options.defaults().threads(1));
    closed.close();
    assertThrows(IllegalStateException.class, () -> closed.run(GenerateRequest.text("a")));
    assertThrows(IllegalStateException.class, () -> closed.run(GenerateRequest.ids(1)));
  }

  @Test
  void cudaIsNotHere() {
    assertThrows(
        BackendException.class,
        () -> Loupe.open(Golden.DEMO_MODEL, Options.defaults().backend(Backend.CUDA)));
  }
}
