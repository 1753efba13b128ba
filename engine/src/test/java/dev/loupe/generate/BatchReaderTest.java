package dev.loupe.generate;

import static dev.loupe.generate.LoneReads.ALL;
import static dev.loupe.generate.LoneReads.all;
import static dev.loupe.generate.LoneReads.read;
import static dev.loupe.generate.LoneReads.readAlone;
import static dev.loupe.generate.LoneReads.same;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.attention.HeadScore;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.generate.BatchReader.Result;
import dev.loupe.generate.LoneReads.Read;
import dev.loupe.model.Golden;
import dev.loupe.weights.RandomCheckpoint;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.io.Progress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Texts read many at a time are read as if each were alone. */
class BatchReaderTest {
  private static final int CONTEXT = 128;

  private static Loupe one; // thread
  private static Loupe two;
  private static List<Read> reads;

  @BeforeAll
  static void open(@TempDir Path folder) throws Exception {
    Path tiny = TinyModel.in(folder).folder();
    one = Loupe.open(tiny, Options.defaults().backend(Backend.CPU).threads(1));
    two = Loupe.open(tiny, Options.defaults().backend(Backend.CPU).threads(2));
    Random random = new Random(20_26);
    reads = new ArrayList<>();
    for (int length : new int[] {1, 2, 15, 16, 17, 63, 64, 65, CONTEXT, 40, 3}) {
      for (int ids : new int[] {7, 1023}) { // few, which come again and again
        reads.add(readAlone(one, random.ints(length, 0, ids).toArray()));
      }
    }
  }

  @AfterAll
  static void close() {
    one.close();
    two.close();
  }

  /** One text at a time, though it be as long as the context. */
  private static List<Double> logprobsAlone(List<Read> texts) {
    List<Double> logprobs = new ArrayList<>();
    try (BatchReader reader = one.batchReader(Optional.empty(), true, 1)) {
      for (Read text : texts) {
        logprobs.add(read(reader, List.of(text)).getFirst().logprob());
      }
    }
    return logprobs;
  }

  @ParameterizedTest
  @ValueSource(ints = {1, CONTEXT, 200, 300, 1000, 4096})
  void asIfAlone(int budget) {
    List<Read> texts = new ArrayList<>(reads);
    for (int order = 0; order < 3; order++) {
      List<Double> logprobs = logprobsAlone(texts);
      for (Loupe loupe : List.of(one, two)) {
        try (BatchReader reader = loupe.batchReader(Optional.of(ALL), true, budget)) {
          same(texts, logprobs, read(reader, texts));
          same(texts, logprobs, read(reader, texts)); // what the memory held before is no matter
        }
      }
      Collections.shuffle(texts, new Random(order));
    }
  }

  /** So many that memory for their keys is full long before the budget is. */
  @Test
  void manyTinyTexts() {
    List<Read> texts = new ArrayList<>();
    for (int i = 0; i < 400; i++) {
      texts.add(reads.get(i % 4)); // of one or two tokens
    }
    try (BatchReader reader = two.batchReader(Optional.of(ALL), true, CONTEXT)) {
      same(texts, logprobsAlone(texts), read(reader, texts));
    }
  }

  @Test
  void ofTheDemoModel() throws Exception {
    try (Loupe demo =
        Loupe.open(Golden.DEMO_MODEL, Options.defaults().backend(Backend.CPU).threads(2))) {
      List<Read> texts = Golden.all().stream().map(g -> readAlone(demo, g.ids())).toList();
      List<Double> logprobs = new ArrayList<>();
      try (BatchReader reader = demo.batchReader(Optional.empty(), true, 1)) {
        texts.forEach(text -> logprobs.add(read(reader, List.of(text)).getFirst().logprob()));
      }
      try (BatchReader reader = demo.batchReader(Optional.of(ALL), true, 600)) {
        same(texts, logprobs, read(reader, texts));
      }
    }
  }

  @Test
  void onlyWhatWasAskedFor() {
    List<Double> logprobs = logprobsAlone(reads);
    try (BatchReader reader = two.batchReader(Optional.empty(), true, 500)) {
      List<Result> results = read(reader, reads);
      assertEquals(logprobs, results.stream().map(Result::logprob).toList());
      assertTrue(results.stream().allMatch(r -> r.heads().isEmpty()));
    }
    try (BatchReader reader = two.batchReader(Optional.of(AttentionSelection.all()), false, 500)) {
      List<Result> results = read(reader, reads);
      for (int i = 0; i < reads.size(); i++) {
        assertTrue(Double.isNaN(results.get(i).logprob()));
        assertTrue(Double.isNaN(results.get(i).perplexity()));
        assertFalse(results.get(i).heads().orElseThrow().hasValueNorms());
        same(
            one.run(
                    GenerateRequest.ids(reads.get(i).text())
                        .tokens(0)
                        .attention(AttentionSelection.all().headStatisticsOnly()))
                .getFirst()
                .headStatistics()
                .orElseThrow(),
            results.get(i).heads().orElseThrow());
      }
    }
    try (BatchReader reader = two.batchReader(Optional.empty(), false, 500)) {
      for (Result result : read(reader, reads)) {
        assertEquals(Optional.empty(), result.error());
        assertTrue(result.heads().isEmpty() && Double.isNaN(result.logprob()));
      }
    }
  }

  @Test
  void chosenLayersAndHeads() {
    AttentionSelection some = AttentionSelection.all().layers(1).heads(1).withValueNorms();
    try (BatchReader reader = two.batchReader(Optional.of(some), false, 500)) {
      List<Result> results = read(reader, reads);
      for (int i = 0; i < reads.size(); i++) {
        HeadStatistics heads = results.get(i).heads().orElseThrow();
        assertEquals(1, heads.layers().length * heads.heads().length);
        for (HeadScore score : HeadScore.values()) {
          assertEquals(reads.get(i).heads().score(score, 1, 1), heads.score(score, 1, 1));
        }
        assertEquals(reads.get(i).heads().edgesByNorm(1, 1), heads.edgesByNorm(1, 1));
        assertThrows(
            IllegalArgumentException.class, () -> heads.score(HeadScore.SELF, 0, 1), "left out");
      }
    }
    assertThrows(
        IllegalArgumentException.class,
        () -> two.batchReader(Optional.of(AttentionSelection.all().layers(3)), false, 500));
  }

  private static String error(Result result) {
    assertTrue(result.heads().isEmpty() && Double.isNaN(result.logprob()));
    return result.error().orElseThrow();
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 4096})
  void whatIsWrongWithOneTextIsNoMatterToOthers(int budget) {
    List<Read> sound = List.of(reads.get(9), reads.get(13), reads.get(3));
    List<int[]> texts =
        List.of(
            new int[0],
            sound.get(0).text(),
            new int[CONTEXT + 1],
            sound.get(1).text(),
            new int[] {1, 1024},
            new int[] {-1},
            sound.get(2).text(),
            new int[0]);
    try (BatchReader reader = two.batchReader(Optional.of(ALL), true, budget)) {
      List<Result> results = all(reader, texts);
      assertEquals("the text is empty", error(results.get(0)));
      assertEquals("the text has 129 tokens and the model reads 128", error(results.get(2)));
      assertEquals(CONTEXT + 1, results.get(2).tokens());
      assertEquals("token id 1024 is outside the vocabulary 0..1023", error(results.get(4)));
      assertEquals("token id -1 is outside the vocabulary 0..1023", error(results.get(5)));
      assertEquals("the text is empty", error(results.get(7)));
      same(sound, logprobsAlone(sound), List.of(results.get(1), results.get(3), results.get(6)));
      assertEquals("the text is empty", error(all(reader, List.of(new int[0])).getFirst()));
    }
  }

  @Test
  void idsOfThePaddingAreNoTokens(@TempDir Path folder) throws Exception {
    Gpt2Config config =
        new Gpt2Config(2, 4, 64, 32, 1088, 256, Activation.GELU_NEW, 1e-5f, true, false, 0, 0);
    RandomCheckpoint.write(config, 3, folder, RandomCheckpoint.Layout.PLAIN, Progress.NONE);
    Files.copy(Golden.DEMO_MODEL.resolve("tokenizer.json"), folder.resolve("tokenizer.json"));
    try (Loupe padded = Loupe.open(folder, Options.defaults().backend(Backend.CPU));
        BatchReader reader = padded.batchReader(Optional.of(ALL), true, 1)) {
      List<Result> results = all(reader, List.of(new int[] {3, 1024}, new int[] {3, 1023}));
      assertEquals("token id 1024 is outside the vocabulary 0..1023", error(results.get(0)));
      assertEquals(Optional.empty(), results.get(1).error());
    }
  }

  @Test
  void nanIsOfTheTextsThatHoldTheToken(@TempDir Path folder) throws Exception {
    TinyModel broken = TinyModel.in(folder);
    broken.poke("wte.weight", 64 * 500 + 3, Float.NaN); // 64 wide
    int[] first = {500, 1, 2, 3, 4, 5, 6, 7};
    int[] middle = reads.get(11).text();
    middle[20] = 500;
    int[] last = {1, 2, 500};
    List<Read> sound = reads.stream().filter(read -> !read.ids().contains(500)).limit(8).toList();
    List<int[]> texts = new ArrayList<>();
    for (Read text : sound) {
      texts.add(text.text());
      texts.add(texts.size() % 3 == 0 ? first : texts.size() % 3 == 1 ? middle : last);
    }
    for (int budget : new int[] {1, 200, 4096}) {
      try (Loupe loupe = Loupe.open(folder, Options.defaults().backend(Backend.CPU).threads(2));
          BatchReader reader = loupe.batchReader(Optional.of(ALL), false, budget)) {
        for (int again = 0; again < 2; again++) {
          List<Result> results = all(reader, texts);
          for (int i = 0; i < texts.size(); i += 2) {
            assertEquals(Optional.empty(), results.get(i).error());
            same(sound.get(i / 2).heads(), results.get(i).heads().orElseThrow());
            assertEquals("the model computes NaN", error(results.get(i + 1)));
          }
        }
      }
    }
  }

  /** The last block's MLP may break in the middle of a text, where nothing but its logits show. */
  @Test
  void nanInOdds(@TempDir Path folder) throws Exception {
    TinyModel broken = TinyModel.in(folder);
    broken.poke("wte.weight", 64 * 500 + 3, Float.NaN); // of the tied head too
    try (Loupe loupe = Loupe.open(folder, Options.defaults().backend(Backend.CPU));
        BatchReader reader = loupe.batchReader(Optional.empty(), true, 1)) {
      List<Result> results = all(reader, List.of(new int[] {1, 2}, new int[] {1}));
      assertEquals("the model computes NaN as odds of token 1", error(results.get(0)));
      assertEquals(Optional.empty(), results.get(1).error(), "no odds are needed");
    }
  }

  @Test
  void takesNoMoreTextsThanAPassNeeds() {
    int[] taken = new int[1];
    Iterator<int[]> endless =
        new Iterator<>() {
          @Override
          public boolean hasNext() {
            return true;
          }

          @Override
          public int[] next() {
            taken[0]++;
            return new int[50];
          }
        };
    try (BatchReader reader = one.batchReader(Optional.empty(), false, 210)) {
      Iterator<Result> results = reader.read(endless);
      assertTrue(results.hasNext());
      assertEquals(0, taken[0]);
      for (int i = 0; i < 9; i++) {
        assertEquals(50, results.next().tokens());
        assertEquals(4 * (i / 4 + 1) + 1, taken[0], "a pass of four and the one that did not fit");
      }
    }
  }

  @Test
  void theEnd() {
    try (BatchReader reader = one.batchReader(Optional.empty(), false, 100)) {
      assertFalse(reader.read(Collections.emptyIterator()).hasNext());
      Iterator<Result> results = reader.read(List.of(new int[] {1}).iterator());
      assertEquals(1, results.next().tokens());
      assertFalse(results.hasNext());
      assertThrows(NoSuchElementException.class, results::next);
    }
  }

  @Test
  void twoReadersAtOnce() throws Exception {
    List<Double> logprobs = logprobsAlone(reads);
    List<Future<?>> both = new ArrayList<>();
    try (ExecutorService threads = Executors.newFixedThreadPool(2)) {
      for (int thread = 0; thread < 2; thread++) {
        both.add(
            threads.submit(
                () -> {
                  try (BatchReader reader = two.batchReader(Optional.of(ALL), true, 256)) {
                    for (int i = 0; i < 3; i++) {
                      same(reads, logprobs, read(reader, reads));
                    }
                  }
                }));
      }
    }
    for (Future<?> done : both) {
      Object _ = done.get();
    }
  }

  @Test
  void budgets() {
    for (int tokens : new int[] {0, -1, (1 << 20) + 1}) {
      assertThrows(
          IllegalArgumentException.class,
          () -> one.batchReader(Optional.empty(), false, tokens),
          tokens + " tokens");
    }
  }

  @Test
  void closed() {
    BatchReader reader = one.batchReader(Optional.of(ALL), true, 100);
    reader.close();
    Iterator<Result> results = reader.read(List.of(new int[] {1, 2}).iterator());
    assertThrows(IllegalStateException.class, results::next);
  }
}
