package dev.loupe.interpret;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.OnGpu;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import dev.loupe.attention.AttentionMaps;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Prompt;
import dev.loupe.generate.ReadRequest;
import dev.loupe.generate.Token;
import dev.loupe.model.Golden;
import dev.loupe.model.Interventions;
import dev.loupe.model.ReferenceGpt2;
import dev.loupe.ops.Mask;
import dev.loupe.sampling.Sampling;
import dev.loupe.weights.Checkpoint;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CancellationException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

class ActivationCacheTest {
  private static final int[] IDS = Golden.of("repeat").ids();

  private static Loupe loupe;

  @TempDir Path folder;

  @BeforeAll
  static void open() throws Exception {
    loupe = Loupe.open(Golden.DEMO_MODEL, Options.defaults().backend(Backend.CPU).threads(2));
  }

  @AfterAll
  static void close() {
    loupe.close();
  }

  /** A text as long as the context, most of whose rows come in several chunks. */
  private static int[] longText() {
    int[] ids = new int[256];
    Arrays.setAll(ids, i -> IDS[i % IDS.length]);
    return ids;
  }

  private static void assertRows(AttentionMaps maps, ActivationCache cache, float tolerance) {
    int tokens = maps.tokens();
    int[] heads = maps.heads();
    for (int layer : maps.layers()) {
      List<Integer> seen = new ArrayList<>();
      cache.rebuild(
          layer,
          heads,
          0,
          tokens,
          (head, query, row) -> {
            seen.add(head * tokens + query);
            float[] whole = Arrays.copyOf(row, cache.keys(query));
            assertArrayEquals(maps.row(layer, head, query), whole, tolerance);
          });
      assertEquals((long) heads.length * tokens, seen.stream().distinct().count());
      assertEquals(heads.length * tokens, seen.size());
    }
  }

  @Test
  void rowsAreThoseOfTheRunThatWroteTheText() {
    Generation written =
        loupe
            .run(
                GenerateRequest.text("ROMEO:\nWhat")
                    .tokens(60)
                    .sampling(Sampling.seeded(3))
                    .logprobs(3)
                    .attention(AttentionSelection.all()))
            .getFirst();
    int[] ids = written.tokens().stream().mapToInt(Token::id).toArray();
    Prompt again = Prompt.ids(ids).length(written.promptLength());
    try (ActivationCache cache = loupe.cache(ReadRequest.of(again), 3)) {
      assertEquals(written.tokens(), cache.tokens());
      assertEquals(written.promptLength(), cache.promptLength());
      assertRows(written.attention(), cache, 0);
      assertArrayEquals(written.attention().row(5, 1, 40), cache.row(5, 1, 40));
      assertEquals(6, cache.layers());
      assertEquals(3, cache.heads());
      int t = ids.length;
      long derived = 6L * (t * (t + 1) / 2 + 3 * t); // rollout, norms of values
      assertEquals(4 * (t * (5L * 192 * 6 + 192) + derived), cache.bytes());
    }
    Generation read = loupe.run(GenerateRequest.of(again).logprobs(3).tokens(0)).getFirst();
    assertEquals(written.tokens(), read.tokens());
    assertEquals(written.text(), read.text());
  }

  @Test
  void aFullContext() {
    int[] ids = longText();
    Generation read =
        loupe
            .run(GenerateRequest.ids(ids).tokens(0).logprobs(0).attention(AttentionSelection.all()))
            .getFirst();
    try (ActivationCache cache = loupe.cache(ReadRequest.ids(ids), 0)) {
      assertRows(read.attention(), cache, 0);
      assertEquals(read.tokens(), cache.tokens());
    }
  }

  /** Rows of all heads are more than is rebuilt at a time. */
  @Test
  void rowsInSeveralChunks() throws Exception {
    int[] ids = new Random(2).ints(1024, 0, 1023).toArray();
    try (Loupe many =
        Loupe.open(
            TinyModel.withManyHeads(folder).folder(), Options.defaults().backend(Backend.CPU))) {
      AttentionSelection some = AttentionSelection.all().layers(11);
      Generation read = many.run(GenerateRequest.ids(ids).tokens(0).attention(some)).getFirst();
      try (ActivationCache cache = many.cache(ReadRequest.ids(ids))) {
        assertRows(read.attention(), cache, 0);
        int[] two = {3, 11};
        List<Integer> queries = new ArrayList<>();
        cache.rebuild(
            11,
            two,
            500,
            1024,
            (head, query, row) -> {
              queries.add(query);
              assertArrayEquals(
                  read.attention().row(11, head, query), Arrays.copyOf(row, query + 1));
            });
        assertEquals(2 * 524, queries.size());
      }
    }
  }

  @Test
  void withInterventionsItIsTheChangedModel() {
    Interventions changes = Interventions.NONE.scale(4, 0, 0).mean(2, 1);
    Generation read =
        loupe
            .run(
                GenerateRequest.ids(IDS)
                    .tokens(0)
                    .logprobs(0)
                    .interventions(changes)
                    .attention(AttentionSelection.all()))
            .getFirst();
    try (ActivationCache cache = loupe.cache(ReadRequest.ids(IDS).interventions(changes), 0)) {
      assertRows(read.attention(), cache, 0);
      assertEquals(read.tokens(), cache.tokens());
    }
  }

  /** Means are over the prompt, though more was read. */
  @Test
  void meansAreThoseOfThePrompt() {
    Interventions changes = Interventions.NONE.mean(3, 1);
    Generation written =
        loupe
            .run(
                GenerateRequest.text("To be or not")
                    .tokens(20)
                    .logprobs(0)
                    .sampling(Sampling.seeded(1))
                    .interventions(changes))
            .getFirst();
    int[] ids = written.tokens().stream().mapToInt(Token::id).toArray();
    ReadRequest whole = ReadRequest.ids(ids).interventions(changes);
    ReadRequest again =
        ReadRequest.of(Prompt.ids(ids).length(written.promptLength())).interventions(changes);
    try (ActivationCache all = loupe.cache(whole, 0);
        ActivationCache prompt = loupe.cache(again, 0)) {
      assertEquals(written.tokens(), prompt.tokens());
      assertFalse(written.tokens().getLast().logprob() == all.tokens().getLast().logprob());
    }
  }

  @Test
  void withoutTheMaskEveryTokenReadsAll() throws Exception {
    try (Checkpoint checkpoint = Checkpoint.open(Golden.DEMO_MODEL);
        ActivationCache cache = loupe.cache(ReadRequest.ids(IDS).mask(Mask.FULL), 0)) {
      ReferenceGpt2 reference =
          new ReferenceGpt2(checkpoint, checkpoint.config(), IDS, (layer, heads) -> {}, false);
      for (int layer = 0; layer < 6; layer++) {
        for (int head = 0; head < 3; head++) {
          for (int query = 0; query < IDS.length; query++) {
            float[] row = cache.row(layer, head, query);
            assertEquals(IDS.length, row.length);
            for (int key = 0; key < row.length; key++) {
              assertEquals(reference.attention[layer][head][query][key], row[key], 1e-4);
            }
          }
        }
      }
      for (int at = 0; at < IDS.length; at++) {
        float[] logits = cache.logits(at);
        for (int id = 0; id < logits.length; id += 7) {
          assertEquals(reference.logits[at][id], logits[id], 2e-3);
        }
      }
    }
  }

  @Test
  void comparedWithoutTheMask() throws Exception {
    Comparison comparison = loupe.compare(ReadRequest.ids(IDS).mask(Mask.FULL));
    try (Checkpoint checkpoint = Checkpoint.open(Golden.DEMO_MODEL)) {
      ReferenceGpt2 causal = new ReferenceGpt2(checkpoint, IDS);
      ReferenceGpt2 full =
          new ReferenceGpt2(checkpoint, checkpoint.config(), IDS, (layer, heads) -> {}, false);
      for (int layer = 0; layer < 6; layer++) {
        for (int head = 0; head < 3; head++) {
          double variation = 0;
          for (int query = 0; query < IDS.length; query++) {
            for (int key = 0; key < IDS.length; key++) {
              double p = causal.attention[layer][head][query][key];
              variation += Math.abs(p - full.attention[layer][head][query][key]) / 2;
            }
          }
          assertEquals(variation / IDS.length, comparison.maps().get(layer).get(head), 1e-4);
        }
      }
    }
    assertTrue(comparison.divergences().stream().mapToDouble(d -> d).max().orElseThrow() > 0.1);
  }

  private static void refused(String message, Executable call) {
    assertEquals(message, assertThrows(IllegalArgumentException.class, call).getMessage());
  }

  @Test
  void whatIsNotThereIsRefused() {
    try (ActivationCache cache = loupe.cache(ReadRequest.ids(IDS))) {
      assertTrue(cache.tokens().stream().allMatch(token -> Double.isNaN(token.logprob())));
      refused("there is no layer 6: the model has layers 0..5", () -> cache.row(6, 0, 0));
      refused("there is no layer -1: the model has layers 0..5", () -> cache.row(-1, 0, 0));
      refused("there is no head 3: a layer has heads 0..2", () -> cache.row(0, 3, 0));
      int last = IDS.length - 1;
      String rows = "no rows %d to %d: the text has tokens 0..%d";
      refused(rows.formatted(last + 1, last + 2, last), () -> cache.row(0, 0, last + 1));
      refused(rows.formatted(-1, 0, last), () -> cache.row(0, 0, -1));
      refused(
          rows.formatted(2, 2, last),
          () -> cache.rebuild(0, new int[] {0}, 2, 2, (h, q, row) -> {}));
    }
    refused(
        "the text has 257 tokens and the model reads 256: shorten it by 1",
        () -> loupe.cache(ReadRequest.ids(Arrays.copyOf(longText(), 257))));
    refused("a prompt of 0 tokens: not 1 or more", () -> Prompt.ids(IDS).length(0));
    assertThrows(
        CancellationException.class,
        () -> loupe.cache(ReadRequest.ids(IDS).listener((layersDone, layers) -> layersDone < 3)));
  }

  @Test
  void closedItGivesNothing() {
    ActivationCache cache = loupe.cache(ReadRequest.ids(IDS));
    cache.close();
    assertThrows(IllegalStateException.class, () -> cache.row(0, 0, 3));
  }

  @Test
  void differentTextsAreNotCompared() {
    try (ActivationCache one = loupe.cache(ReadRequest.ids(1, 2, 3), 0);
        ActivationCache other = loupe.cache(ReadRequest.ids(1, 2, 4), 0)) {
      refused(
          "two different texts can't be compared token by token", () -> Comparison.of(one, other));
    }
  }

  @OnGpu
  @Test
  void theGpuKeepsTheSame() throws Exception {
    Path tiny = TinyModel.in(folder).folder();
    try (Loupe cpu = Loupe.open(tiny, Options.defaults().backend(Backend.CPU).threads(2));
        Loupe gpu = Loupe.open(tiny, Options.defaults().backend(Backend.CUDA))) {
      for (Mask mask : Mask.values()) {
        ReadRequest request = ReadRequest.text("To be or not to be").mask(mask);
        try (ActivationCache expected = cpu.cache(request, 0);
            ActivationCache cache = gpu.cache(request, 0)) {
          int tokens = expected.tokens().size();
          for (int query = 0; query < tokens; query++) {
            assertArrayEquals(expected.row(1, 1, query), cache.row(1, 1, query), 1e-4f);
          }
          assertEquals(
              expected.tokens().getLast().logprob(), cache.tokens().getLast().logprob(), 1e-3);
        }
      }
    }
  }
}
