package dev.loupe.generate;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.OnGpu;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.model.Transformer;
import dev.loupe.ops.Precision;
import dev.loupe.ops.cuda.CudaOps;
import dev.loupe.ops.cuda.Graphs;
import dev.loupe.sampling.Sampling;
import dev.loupe.text.TokenizerFiles;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.Gpt2Gguf;
import dev.loupe.weights.LlmCFile;
import dev.loupe.weights.ggml.GgmlType;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Runs of a tiny random model at the edge of what the GPU takes, in every way it can make them. */
@OnGpu
@Timeout(200)
class CudaSizesTest {
  @TempDir static Path folder;
  private static Path model;

  @BeforeAll
  static void model() throws Exception {
    model = TinyModel.in(folder).folder();
  }

  static Loupe open(Path model, Precision precision) throws Exception {
    return Loupe.open(model, Options.defaults().backend(Backend.CUDA).precision(precision));
  }

  static GenerateRequest request() {
    return GenerateRequest.text("ROMEO: what").tokens(6).sampling(Sampling.seeded(3));
  }

  static GenerateRequest mapped() {
    return request().attention(AttentionSelection.all().withScores()).logprobs(1);
  }

  static int[] ids(Generation run) {
    return run.tokens().stream().mapToInt(Token::id).toArray();
  }

  /** Rows of probabilities: each of the first {@code count} sums to one. */
  static void assertRowsAreWhole(Generation run, int count) {
    for (int query = 0; query < count; query++) {
      float sum = 0;
      for (float p : run.attention().row(0, 0, query)) {
        sum += p;
      }
      assertEquals(1, sum, 1e-3, "row " + query);
    }
  }

  @Test
  void twoRunsAtOnceDoNotDisturbEachOther() throws Exception {
    try (Loupe loupe = open(model, Precision.INT8);
        ExecutorService two = Executors.newFixedThreadPool(2)) {
      GenerateRequest longer =
          GenerateRequest.text("To be or not to be").tokens(9).sampling(Sampling.seeded(8));
      int[] first = ids(loupe.run(mapped()).getFirst());
      int[] second = ids(loupe.run(longer).getFirst());
      List<Future<int[]>> firsts = new ArrayList<>();
      List<Future<int[]>> seconds = new ArrayList<>();
      for (int i = 0; i < 4; i++) {
        firsts.add(two.submit(() -> ids(loupe.run(mapped()).getFirst())));
        seconds.add(two.submit(() -> ids(loupe.run(longer).getFirst())));
      }
      for (int i = 0; i < 4; i++) {
        assertArrayEquals(first, firsts.get(i).get());
        assertArrayEquals(second, seconds.get(i).get());
      }
    }
  }

  /** Matrices that lie transposed in their file, and ones that are quantised there. */
  @Test
  void weightsThatAreMadeOnTheWay() throws Exception {
    Path transposed = folder.resolve("model.bin");
    Path quantised = folder.resolve("q8.gguf");
    try (Checkpoint checkpoint = Checkpoint.open(model)) {
      LlmCFile.write(checkpoint, false, 0, transposed);
      Vocabulary vocabulary = TokenizerFiles.vocabulary(checkpoint, Optional.empty());
      Gpt2Gguf.write(checkpoint, vocabulary, GgmlType.Q8_0, quantised, Progress.NONE);
    }
    try (Loupe expected = open(model, Precision.F32);
        Loupe actual = open(transposed, Precision.F32)) {
      assertArrayEquals(
          ids(expected.run(request()).getFirst()), ids(actual.run(request()).getFirst()));
    }
    try (Loupe cpu = Loupe.open(quantised, Options.defaults().backend(Backend.CPU));
        Loupe gpu = open(quantised, Precision.F32)) {
      GenerateRequest read = GenerateRequest.text("ROMEO: what").tokens(0).logprobs(1);
      List<Token> expected = cpu.run(read).getFirst().tokens();
      List<Token> actual = gpu.run(read).getFirst().tokens();
      for (int i = 1; i < expected.size(); i++) {
        assertEquals(expected.get(i).logprob(), actual.get(i).logprob(), 1e-4, "token " + i);
      }
    }
  }

  /** Graphs on and off, maps on and off, a batch of one and of three. */
  @Tag("sweep")
  @ParameterizedTest
  @EnumSource(names = {"F32", "INT8"})
  void howTokensAreMadeDoesNotChangeThem(Precision precision) throws Exception {
    List<int[]> all = new ArrayList<>();
    for (boolean graphs : new boolean[] {true, false}) {
      try (Loupe cpu = Loupe.open(model, Options.defaults().backend(Backend.CPU));
          Checkpoint checkpoint = Checkpoint.open(model);
          CudaOps ops = Graphs.ops(precision, graphs);
          Transformer transformer = new Transformer(checkpoint, ops)) {
        for (GenerateRequest request :
            List.of(request(), request().samples(3), mapped(), mapped().samples(3))) {
          OpenModel open =
              new OpenModel(transformer, checkpoint, cpu.tokenizer(), cpu.info(), () -> "");
          all.add(ids(Scheduler.alone(open, request.tokens(9)).getFirst()));
        }
      }
    }
    for (int[] ids : all) {
      assertArrayEquals(all.getFirst(), ids);
    }
  }

  @Test
  void aPromptThatFillsTheContext() throws Exception {
    try (Loupe loupe = open(model, Precision.F16)) {
      int[] ids = new int[loupe.info().config().nPositions()];
      Arrays.setAll(ids, i -> i % 50);
      Generation run =
          loupe
              .run(GenerateRequest.ids(ids).tokens(0).attention(AttentionSelection.all()))
              .getFirst();
      assertRowsAreWhole(run, ids.length);
      assertEquals(
          1, written(loupe.run(GenerateRequest.ids(ids).tokens(1)).getFirst()), "no position");
      assertThrows(
          IllegalArgumentException.class, () -> loupe.run(GenerateRequest.ids(ids).tokens(2)));
    }
  }

  @ParameterizedTest
  @EnumSource
  void sizesAtTheEdge(Precision precision) throws Exception {
    try (Loupe loupe = open(model, precision)) {
      assertEquals(0, written(loupe.run(mapped().tokens(0)).getFirst()));
      assertEquals(1, written(loupe.run(mapped().tokens(1)).getFirst()));
      GenerateRequest one = GenerateRequest.ids(5).tokens(3).sampling(Sampling.seeded(1));
      Generation alone = loupe.run(one).getFirst();
      assertEquals(3, written(alone));
      Generation kept = loupe.run(one.attention(AttentionSelection.all().withScores())).getFirst();
      assertArrayEquals(ids(alone), ids(kept), "maps on and off");
      assertRowsAreWhole(kept, kept.tokens().size());
      List<Generation> many = loupe.run(mapped().samples(9));
      assertEquals(9, many.size());
      for (Generation run : many) {
        assertEquals(6, written(run));
        assertRowsAreWhole(run, run.tokens().size());
      }
    }
  }

  private static int written(Generation run) {
    return run.tokens().size() - run.promptLength();
  }
}
