package dev.loupe;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.attention.AttentionMaps;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.generate.AttentionRows;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Generation.Finish;
import dev.loupe.generate.Prompt;
import dev.loupe.generate.Token;
import dev.loupe.model.Golden;
import dev.loupe.ops.BackendException;
import dev.loupe.sampling.Sampling;
import dev.loupe.weights.tensor.DType;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Whole runs on the demo model. */
class LoupeTest {
  private static Loupe loupe;

  @BeforeAll
  static void open() throws Exception {
    loupe = Loupe.open(Golden.DEMO_MODEL, Options.defaults().threads(2));
  }

  @AfterAll
  static void close() {
    loupe.close();
  }

  private static Generation one(GenerateRequest request) {
    return loupe.run(request).getFirst();
  }

  private static int[] ids(Generation run) {
    return run.tokens().stream().mapToInt(Token::id).toArray();
  }

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
  void mapsOnOrOffChangeNoBit() {
    GenerateRequest plain =
        GenerateRequest.text("ROMEO:").tokens(40).sampling(Sampling.seeded(4)).logprobs(3);
    GenerateRequest mapped =
        GenerateRequest.text("ROMEO:")
            .tokens(40)
            .sampling(Sampling.seeded(4))
            .logprobs(3)
            .attention(AttentionSelection.all().withScores());
    Generation without = one(plain);
    Generation with = one(mapped);
    assertEquals(without.tokens(), with.tokens(), "ids, logprobs, ranks and alternatives");
    assertTrue(without.maps().isEmpty());
    assertThrows(IllegalStateException.class, without::attention);
  }

  @Test
  void mapsOfARunEqualThoseOfReadingItsText() {
    Generation run = loupe.generate("ROMEO:", Sampling.seeded(4), 30, AttentionSelection.all());
    Generation read =
        one(GenerateRequest.ids(ids(run)).tokens(0).attention(AttentionSelection.all()));
    for (int l = 0; l < 6; l++) {
      for (int h = 0; h < 3; h++) {
        for (int q = 0; q < run.tokens().size(); q++) {
          assertArrayEquals(read.attention().row(l, h, q), run.attention().row(l, h, q));
        }
      }
    }
  }

  @Test
  void selectionsKeepTheirNumbers() {
    Generation all = loupe.read("But soft, what light", AttentionSelection.all());
    Generation some =
        loupe.read("But soft, what light", AttentionSelection.all().layers(4, 1).heads(2));
    AttentionMaps maps = some.attention();
    assertArrayEquals(new int[] {1, 4}, maps.layers());
    assertArrayEquals(new int[] {2}, maps.heads());
    for (int q = 0; q < maps.tokens(); q++) {
      assertArrayEquals(all.attention().row(4, 2, q), maps.row(4, 2, q));
    }
    assertThrows(IllegalArgumentException.class, () -> maps.row(0, 2, 0));
    assertThrows(IllegalArgumentException.class, () -> maps.row(1, 0, 0));
    assertThrows(IllegalArgumentException.class, () -> maps.row(1, 2, maps.tokens()));
  }

  @Test
  void scoresAreWhatTheSoftmaxSaw() {
    Generation run = loupe.read("But soft, what", AttentionSelection.all().withScores());
    float[] s = run.scores().orElseThrow().row(3, 1, 4);
    float[] p = run.attention().row(3, 1, 4);
    double sum = 0;
    for (float score : s) {
      sum += Math.exp(score);
    }
    for (int k = 0; k < s.length; k++) {
      assertEquals(Math.exp(s[k]) / sum, p[k], 1e-6);
    }
  }

  @Test
  void statisticsAreThoseOfTheMaps() {
    GenerateRequest request = GenerateRequest.text("To be, or not to be").tokens(20);
    AttentionSelection selection = AttentionSelection.all().layers(1, 4);
    Generation both = one(request.attention(selection.withStatistics(5)));
    AttentionRows.close(both.attention(), both.statistics().orElseThrow(), 1e-6);
    Generation only = one(request.attention(selection.statisticsOnly(16)));
    assertTrue(only.maps().isEmpty());
    assertThrows(IllegalStateException.class, only::attention);
    AttentionRows.close(both.attention(), only.statistics().orElseThrow(), 1e-6);
    assertThrows(IllegalArgumentException.class, () -> selection.withStatistics(17));
    assertThrows(IllegalArgumentException.class, () -> selection.statisticsOnly(0));
  }

  @Test
  void mapsOfHalvesAreTheRoundedOnes() {
    GenerateRequest request = GenerateRequest.text("To be, or not to be").tokens(20);
    AttentionMaps whole = one(request.attention(AttentionSelection.all())).attention();
    AttentionMaps halves =
        one(request.attention(AttentionSelection.all().dtype(DType.F16))).attention();
    for (int query = 0; query < whole.tokens(); query++) {
      float[] expected = whole.row(3, 1, query);
      for (int key = 0; key <= query; key++) {
        expected[key] = Float.float16ToFloat(Float.floatToFloat16(expected[key]));
      }
      assertArrayEquals(expected, halves.row(3, 1, query));
    }
    assertThrows(IllegalArgumentException.class, () -> AttentionSelection.all().dtype(DType.BF16));
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

  private static void refused(
      Consumer<GenerateRequest> change, GenerateRequest request, String... words) {
    change.accept(request);
    String message =
        assertThrows(IllegalArgumentException.class, () -> loupe.run(request)).toString();
    for (String word : words) {
      assertTrue(message.contains(word), message + " should say " + word);
    }
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
