package dev.loupe.generate;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.OnGpu;
import dev.loupe.Options;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.cuda.driver.KernelChoice;
import dev.loupe.model.Golden;
import dev.loupe.model.Transformer;
import dev.loupe.ops.Precision;
import dev.loupe.ops.cuda.CudaOps;
import dev.loupe.ops.cuda.Graphs;
import dev.loupe.sampling.Sampling;
import dev.loupe.weights.Checkpoint;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Whatever kernels a card computes wrongly, others write the text that the CPU writes. */
@OnGpu
class CudaChoiceTest {
  /** Of each operation the plainest alone. */
  private static final KernelChoice PLAIN =
      (candidates, element, rows) -> Optional.of(candidates.getLast());

  /** What has no plain variant fails: the host chooses tokens. */
  private static final KernelChoice HOST = without(Set.of("sample", "step"));

  private static final KernelChoice NO_GEMV = without(Set.of("gemv"));

  private static final String PROMPT = "ROMEO:\nIs";

  private static KernelChoice without(Set<String> families) {
    return (candidates, element, rows) ->
        families.contains(candidates.getFirst().family())
            ? Optional.empty()
            : KernelChoice.UNTRIED.of(candidates, element, rows);
  }

  private interface Use {
    void of(OpenModel model, Loupe cpu) throws Exception;
  }

  private static void with(KernelChoice choice, Precision precision, Use use) throws Exception {
    Options options = Options.defaults().backend(Backend.CPU).precision(precision);
    try (Loupe cpu = Loupe.open(Golden.DEMO_MODEL, options);
        Checkpoint checkpoint = Checkpoint.open(Golden.DEMO_MODEL);
        CudaOps ops = Graphs.ops(precision, choice);
        Transformer model = new Transformer(checkpoint, ops)) {
      use.of(new OpenModel(model, checkpoint, cpu.tokenizer(), cpu.info(), () -> ""), cpu);
    }
  }

  private static List<Generation> run(OpenModel model, GenerateRequest request) {
    return Scheduler.alone(model, request);
  }

  /**
   * The weights are brought to the device by plain kernels; then one choice takes another's place.
   */
  @ParameterizedTest
  @EnumSource(names = {"F16", "INT8"})
  void theTextIsThatOfTheCpu(Precision precision) throws Exception {
    assertTheTextIsThatOfTheCpu(precision);
  }

  @ParameterizedTest
  @EnumSource(names = {"F32", "BF16"})
  @Tag("sweep")
  void theTextIsThatOfTheCpuInOthers(Precision precision) throws Exception {
    assertTheTextIsThatOfTheCpu(precision);
  }

  private static void assertTheTextIsThatOfTheCpu(Precision precision) throws Exception {
    with(
        PLAIN,
        precision,
        (model, cpu) -> {
          GenerateRequest request =
              GenerateRequest.text("ROMEO:").tokens(5).sampling(Sampling.greedy()).samples(2);
          List<Generation> expected = cpu.run(request);
          for (KernelChoice choice : List.of(PLAIN, HOST, NO_GEMV)) {
            Graphs.use(model.transformer().ops(), choice);
            List<Generation> actual = run(model, request);
            for (int s = 0; s < 2; s++) {
              assertEquals(expected.get(s).text(), actual.get(s).text());
            }
          }
        });
  }

  @Tag("sweep")
  @Test
  void plainKernelsAndTheHostMakeTheSameMapsAndSamples() throws Exception {
    AttentionSelection all = AttentionSelection.all().withScores().withStatistics(3);
    Sampling sampling = Sampling.seeded(7).withTopK(50).withRepetitionPenalty(1.1);
    GenerateRequest request =
        GenerateRequest.text(PROMPT)
            .tokens(5)
            .samples(2)
            .sampling(sampling)
            .logprobs(0)
            .attention(all);
    with(
        PLAIN,
        Precision.F32,
        (model, cpu) -> {
          List<Generation> expected = cpu.run(request);
          for (KernelChoice choice : List.of(PLAIN, HOST)) {
            Graphs.use(model.transformer().ops(), choice);
            List<Generation> actual = run(model, request);
            for (int s = 0; s < 2; s++) {
              Generation e = expected.get(s);
              Generation a = actual.get(s);
              assertEquals(e.text(), a.text());
              AttentionRows.close(e.attention(), a.attention(), 1e-5);
              AttentionRows.close(e.scores().orElseThrow(), a.scores().orElseThrow(), 1e-4);
              AttentionRows.close(a.attention(), a.statistics().orElseThrow(), 1e-5);
            }
          }
        });
  }

  /** Log-probabilities of texts that are read, not written. */
  @Test
  void theHostTakesLogprobsWhereTheDeviceCannot() throws Exception {
    with(
        HOST,
        Precision.F32,
        (model, cpu) -> {
          double[] expected = logprobs(cpu.batchReader(Optional.empty(), true, 100), cpu);
          double[] actual = logprobs(new BatchReader(model, Optional.empty(), true, 100), cpu);
          assertArrayEquals(expected, actual, 1e-3);
        });
  }

  private static double[] logprobs(BatchReader reader, Loupe cpu) {
    List<int[]> texts =
        Stream.of("ROMEO:", PROMPT, "But soft")
            .map(text -> cpu.tokenizer().encode(text, false))
            .toList();
    List<Double> sums = new ArrayList<>();
    try (reader) {
      reader.read(texts.iterator()).forEachRemaining(result -> sums.add(result.logprob()));
    }
    return sums.stream().mapToDouble(sum -> sum).toArray();
  }
}
