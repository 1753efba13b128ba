package dev.loupe.generate;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.OnGpu;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.attention.HeadScore;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.model.Golden;
import dev.loupe.sampling.Sampling;
import dev.loupe.weights.tensor.DType;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Whole runs on the GPU, against the same runs on the CPU: of the demo model where the text
 * matters, else of a tiny random one.
 */
@OnGpu
class CudaLoupeTest {
  private static Loupe cpu;
  private static Loupe gpu;
  private static Loupe tinyCpu;
  private static Loupe tinyGpu;

  @BeforeAll
  static void open(@TempDir Path folder) throws Exception {
    cpu = Loupe.open(Golden.DEMO_MODEL, Options.defaults().backend(Backend.CPU).threads(2));
    gpu = Loupe.open(Golden.DEMO_MODEL, Options.defaults().backend(Backend.CUDA));
    Path tiny = TinyModel.in(folder).folder();
    tinyCpu = Loupe.open(tiny, Options.defaults().backend(Backend.CPU).threads(2));
    tinyGpu = Loupe.open(tiny, Options.defaults().backend(Backend.CUDA));
  }

  @AfterAll
  static void close() {
    cpu.close();
    gpu.close();
    tinyCpu.close();
    tinyGpu.close();
  }

  private static int[] ids(Generation run) {
    return run.tokens().stream().mapToInt(Token::id).toArray();
  }

  /** The shortest, a short one, and one that fills the context. */
  static List<Golden> prompts() {
    return Stream.of("one", "romeo", "full256").map(Golden::of).toList();
  }

  static List<Golden> otherPrompts() {
    List<Golden> others = new ArrayList<>(Golden.all());
    others.removeAll(prompts());
    return others;
  }

  @ParameterizedTest
  @MethodSource("prompts")
  void greedyIdsAreThoseOfTheCpu(Golden golden) {
    assertGreedyIdsAreThoseOfTheCpu(golden);
  }

  @ParameterizedTest
  @MethodSource("otherPrompts")
  @Tag("sweep")
  void greedyIdsOfOtherPromptsAreThoseOfTheCpu(Golden golden) {
    assertGreedyIdsAreThoseOfTheCpu(golden);
  }

  private static void assertGreedyIdsAreThoseOfTheCpu(Golden golden) {
    int room = cpu.info().config().nPositions() - golden.ids().length;
    GenerateRequest request =
        GenerateRequest.ids(golden.ids())
            .tokens(Math.min(6, room))
            .sampling(Sampling.greedy())
            .logprobs(0);
    Generation expected = cpu.run(request).getFirst();
    Generation actual = gpu.run(request).getFirst();
    assertArrayEquals(ids(expected), ids(actual));
    for (int i = 1; i < ids(expected).length; i++) {
      assertEquals(expected.tokens().get(i).logprob(), actual.tokens().get(i).logprob(), 1e-4);
    }
  }

  @Test
  void samplesOfABatchAreThoseOfTheCpu() {
    GenerateRequest request =
        GenerateRequest.text("ROMEO:")
            .tokens(12)
            .samples(3)
            .sampling(Sampling.seeded(7).withTopK(50).withTopP(0.9).withRepetitionPenalty(1.1))
            .logprobs(2);
    List<Generation> expected = tinyCpu.run(request);
    List<Generation> actual = tinyGpu.run(request);
    for (int s = 0; s < 3; s++) {
      assertEquals(expected.get(s).text(), actual.get(s).text());
      for (int i = 1; i < expected.get(s).tokens().size(); i++) {
        Token e = expected.get(s).tokens().get(i);
        Token a = actual.get(s).tokens().get(i);
        assertEquals(e.id(), a.id());
        assertEquals(e.logprob(), a.logprob(), 1e-4);
        assertEquals(e.top().getFirst().id(), a.top().getFirst().id());
      }
    }
    GenerateRequest one = GenerateRequest.text("ROMEO:").tokens(12).sampling(request.sampling);
    assertEquals(tinyGpu.run(one).getFirst().text(), actual.getFirst().text(), "a batch of one");
  }

  @Test
  void drawsAreCountedOnFromTheFirstSample() {
    Sampling sampling = Sampling.seeded(7);
    GenerateRequest four = GenerateRequest.text("ROMEO:").tokens(9).samples(4).sampling(sampling);
    GenerateRequest last =
        GenerateRequest.text("ROMEO:").tokens(9).samples(2).firstSample(2).sampling(sampling);
    List<Generation> expected = tinyCpu.run(four);
    List<Generation> actual = tinyGpu.run(last);
    for (int s = 0; s < 2; s++) {
      assertArrayEquals(ids(expected.get(2 + s)), ids(actual.get(s)));
    }
  }

  @Test
  void theLastTokenNeedsNoPosition() {
    int[] full = new int[tinyCpu.info().config().nPositions()];
    Arrays.setAll(full, i -> 7 * i % 1000);
    int[] before = Arrays.copyOf(full, full.length - 3);
    for (int samples = 1; samples <= 3; samples += 2) {
      GenerateRequest one = GenerateRequest.ids(full).tokens(1).samples(samples).logprobs(0);
      GenerateRequest four = GenerateRequest.ids(before).tokens(4).samples(samples);
      for (GenerateRequest request : List.of(one, four)) {
        List<Generation> expected = tinyCpu.run(request);
        List<Generation> actual = tinyGpu.run(request);
        assertEquals(full.length + 1, actual.getFirst().tokens().size());
        for (int s = 0; s < samples; s++) {
          assertArrayEquals(ids(expected.get(s)), ids(actual.get(s)));
        }
      }
    }
  }

  @Test
  void noTextEndsTooEarly() {
    GenerateRequest plain = GenerateRequest.text("ROMEO:").tokens(12).sampling(Sampling.seeded(5));
    int early = ids(tinyCpu.run(plain).getFirst())[8];
    GenerateRequest ends = plain.stopTokens(Set.of(early));
    assertArrayEquals(ids(tinyCpu.run(ends).getFirst()), ids(tinyGpu.run(ends).getFirst()));
    GenerateRequest later = plain.minTokens(6);
    int[] written = ids(tinyGpu.run(later).getFirst());
    assertArrayEquals(ids(tinyCpu.run(later).getFirst()), written);
    assertTrue(written.length >= tinyCpu.run(later).getFirst().promptLength() + 6);
  }

  /** What the sampler on the device does not count, the host does. */
  @Test
  void tokensAreCountedAsOnTheCpu() {
    Sampling sampling = new Sampling(0, 0, 1, 0, 1, 1.5, 0.5, 0);
    GenerateRequest request =
        GenerateRequest.text("ROMEO:").tokens(16).samples(2).sampling(sampling).logprobs(0);
    List<Generation> expected = tinyCpu.run(request);
    List<Generation> actual = tinyGpu.run(request);
    for (int s = 0; s < 2; s++) {
      assertArrayEquals(ids(expected.get(s)), ids(actual.get(s)));
    }
    GenerateRequest without = GenerateRequest.text("ROMEO:").tokens(16).sampling(Sampling.greedy());
    assertFalse(
        Arrays.equals(ids(expected.getFirst()), ids(tinyCpu.run(without).getFirst())),
        "it makes a difference here");
  }

  @Test
  void mapsAreThoseOfTheCpuAndChangeNothing() {
    GenerateRequest plain =
        GenerateRequest.text("But soft, what light").tokens(7).sampling(Sampling.seeded(3));
    int[] without = ids(tinyGpu.run(plain).getFirst());
    AttentionSelection selection = AttentionSelection.all().layers(0, 1).withScores();
    GenerateRequest request =
        GenerateRequest.text("But soft, what light")
            .tokens(7)
            .sampling(Sampling.seeded(3))
            .attention(selection);
    Generation expected = tinyCpu.run(request).getFirst();
    Generation actual = tinyGpu.run(request).getFirst();
    assertArrayEquals(without, ids(actual), "maps on and off");
    AttentionRows.close(expected.attention(), actual.attention(), 1e-5);
    AttentionRows.close(expected.scores().orElseThrow(), actual.scores().orElseThrow(), 1e-4);
  }

  @Test
  void statisticsAreThoseOfTheMaps() {
    GenerateRequest request =
        GenerateRequest.text("But soft, what light").tokens(7).sampling(Sampling.seeded(3));
    AttentionSelection two = AttentionSelection.all().layers(0, 1);
    Generation mapped = tinyCpu.run(request.attention(two)).getFirst();
    Generation both = tinyGpu.run(request.attention(two.withStatistics(3))).getFirst();
    AttentionRows.close(mapped.attention(), both.attention(), 1e-5);
    AttentionRows.close(mapped.attention(), both.statistics().orElseThrow(), 1e-5);
    for (Generation only : tinyGpu.run(request.samples(2).attention(two.statisticsOnly(16)))) {
      assertTrue(only.maps().isEmpty() && only.scores().isEmpty());
      Generation same =
          tinyCpu.run(GenerateRequest.ids(ids(only)).tokens(0).attention(two)).getFirst();
      AttentionRows.close(same.attention(), only.statistics().orElseThrow(), 1e-5);
    }
  }

  @Test
  void statisticsOfHeadsAreThoseOfTheCpu() {
    AttentionSelection heads = AttentionSelection.all().headStatisticsOnly();
    GenerateRequest read = GenerateRequest.text("But soft, what light").tokens(0);
    GenerateRequest write =
        GenerateRequest.text("But soft, what light").tokens(7).sampling(Sampling.seeded(3));
    for (GenerateRequest request :
        List.of(
            read.attention(heads.withValueNorms().withRollout()),
            write.attention(heads.withRollout()))) {
      Generation expected = tinyCpu.run(request).getFirst();
      Generation actual = tinyGpu.run(request).getFirst();
      assertTrue(actual.maps().isEmpty());
      AttentionRows.close(
          expected.headStatistics().orElseThrow(), actual.headStatistics().orElseThrow(), 1e-5);
      int last = expected.tokens().size() - 1;
      assertArrayEquals(
          expected.rollout().orElseThrow().row(last),
          actual.rollout().orElseThrow().row(last),
          1e-5f);
    }
    GenerateRequest both = write.attention(heads.withValueNorms());
    HeadStatistics expected = tinyCpu.run(both).getFirst().headStatistics().orElseThrow();
    HeadStatistics actual = tinyGpu.run(both).getFirst().headStatistics().orElseThrow();
    for (HeadScore score : HeadScore.values()) {
      assertEquals(expected.score(score, 1, 0), actual.score(score, 1, 0), 1e-4, score.name());
    }
  }

  /** Halves keep 11 bits: half a unit of the last place, and what the GPU's sums differ by. */
  @Test
  void mapsOfHalvesAreRounded() {
    GenerateRequest request =
        GenerateRequest.text("But soft, what light").tokens(7).sampling(Sampling.seeded(3));
    AttentionSelection halves = AttentionSelection.all().dtype(DType.F16).withScores();
    Generation expected = tinyCpu.run(request.attention(AttentionSelection.all())).getFirst();
    Generation actual = tinyGpu.run(request.attention(halves)).getFirst();
    assertEquals(DType.F16, actual.attention().dtype());
    AttentionRows.close(expected.attention(), actual.attention(), 0x1p-12 + 1e-5);
    float odd = 0;
    for (float weight : actual.attention().row(1, 0, 8)) {
      assertEquals(weight, Float.float16ToFloat(Float.floatToFloat16(weight)));
      odd = Math.max(odd, weight);
    }
    assertTrue(odd > 0);
  }

  @Test
  void stopStringsEndTheTextWhereTheCpuDoes() {
    GenerateRequest request =
        GenerateRequest.text("ROMEO:").tokens(30).sampling(Sampling.greedy()).stops(List.of(","));
    Generation expected = cpu.run(request).getFirst();
    Generation actual = gpu.run(request).getFirst();
    assertEquals(expected.text(), actual.text());
    assertEquals(expected.finish(), actual.finish());
    assertTrue(Arrays.equals(ids(expected), ids(actual)));
  }

  @Test
  void aContextThatSlidesGoesOnAsOnTheCpu() {
    int context = tinyCpu.info().config().nPositions();
    int[] ids = new int[context - 2];
    Arrays.setAll(ids, i -> 100 + i % 50);
    GenerateRequest request =
        GenerateRequest.ids(ids)
            .tokens(6)
            .slide(true)
            .sampling(Sampling.seeded(5))
            .attention(AttentionSelection.all().layers(1).heads(0).withStatistics(2));
    Generation expected = tinyCpu.run(request).getFirst();
    Generation actual = tinyGpu.run(request).getFirst();
    assertArrayEquals(ids(expected), ids(actual));
    AttentionRows.close(expected.attention(), actual.attention(), 1e-5);
    AttentionRows.close(actual.attention(), actual.statistics().orElseThrow(), 1e-5);
  }
}
