package dev.loupe;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.attention.AttentionMaps;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.cli.TinyModel;
import dev.loupe.model.Golden;
import dev.loupe.sampling.Sampling;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
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

  static List<Golden> prompts() {
    return Golden.all();
  }

  @ParameterizedTest
  @MethodSource("prompts")
  void greedyIdsAreThoseOfTheCpu(Golden golden) {
    int room = cpu.info().config().nPositions() - golden.ids().length;
    Request request =
        Request.ids(golden.ids()).tokens(Math.min(6, room)).sampling(Sampling.greedy()).logprobs(0);
    Generation expected = cpu.run(request).getFirst();
    Generation actual = gpu.run(request).getFirst();
    assertArrayEquals(ids(expected), ids(actual));
    for (int i = 1; i < ids(expected).length; i++) {
      assertEquals(expected.tokens().get(i).logprob(), actual.tokens().get(i).logprob(), 1e-4);
    }
  }

  @Test
  void samplesOfABatchAreThoseOfTheCpu() {
    Request request =
        Request.text("ROMEO:")
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
    Request one = Request.text("ROMEO:").tokens(12).sampling(request.sampling);
    assertEquals(tinyGpu.run(one).getFirst().text(), actual.getFirst().text(), "a batch of one");
  }

  @Test
  void mapsAreThoseOfTheCpuAndChangeNothing() {
    Request plain = Request.text("But soft, what light").tokens(7).sampling(Sampling.seeded(3));
    int[] without = ids(tinyGpu.run(plain).getFirst());
    AttentionSelection selection = AttentionSelection.all().layers(0, 1).withScores();
    Request request =
        Request.text("But soft, what light")
            .tokens(7)
            .sampling(Sampling.seeded(3))
            .attention(selection);
    Generation expected = tinyCpu.run(request).getFirst();
    Generation actual = tinyGpu.run(request).getFirst();
    assertArrayEquals(without, ids(actual), "maps on and off");
    close(expected.attention(), actual.attention(), 1e-5);
    close(expected.scores().orElseThrow(), actual.scores().orElseThrow(), 1e-4);
  }

  private static void close(AttentionMaps expected, AttentionMaps actual, double tolerance) {
    int[] layers = expected.layers();
    assertArrayEquals(layers, actual.layers());
    for (int layer : layers) {
      for (int head : expected.heads()) {
        for (int query = 0; query < expected.tokens(); query++) {
          float[] e = expected.row(layer, head, query);
          float[] a = actual.row(layer, head, query);
          assertEquals(query + 1, a.length);
          for (int key = 0; key <= query; key++) {
            assertEquals(e[key], a[key], tolerance);
          }
        }
      }
    }
  }

  @Test
  void stopStringsEndTheTextWhereTheCpuDoes() {
    Request request =
        Request.text("ROMEO:").tokens(30).sampling(Sampling.greedy()).stops(List.of(","));
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
    Request request =
        Request.ids(ids)
            .tokens(6)
            .slide(true)
            .sampling(Sampling.seeded(5))
            .attention(AttentionSelection.all().layers(1).heads(0));
    Generation expected = tinyCpu.run(request).getFirst();
    Generation actual = tinyGpu.run(request).getFirst();
    assertArrayEquals(ids(expected), ids(actual));
    close(expected.attention(), actual.attention(), 1e-5);
  }
}
