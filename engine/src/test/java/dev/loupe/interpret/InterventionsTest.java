package dev.loupe.interpret;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.OnGpu;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.ReadRequest;
import dev.loupe.generate.Token;
import dev.loupe.model.Golden;
import dev.loupe.model.Interventions;
import dev.loupe.model.ReferenceGpt2;
import dev.loupe.ops.BackendException;
import dev.loupe.ops.Precision;
import dev.loupe.sampling.Sampling;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.config.Gpt2Config;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Changed heads, against float64 that has them changed where they are made. */
class InterventionsTest {
  private static final int[] IDS = Golden.of("repeat").ids();
  private static final int D = 64; // of the demo model, 3 heads

  private static Loupe loupe;
  private static Checkpoint checkpoint;

  @TempDir Path folder;

  @BeforeAll
  static void open() throws Exception {
    loupe = Loupe.open(Golden.DEMO_MODEL, Options.defaults().backend(Backend.CPU).threads(2));
    checkpoint = Checkpoint.open(Golden.DEMO_MODEL);
  }

  @AfterAll
  static void close() throws Exception {
    loupe.close();
    checkpoint.close();
  }

  private static GenerateRequest reading(Interventions interventions) {
    return GenerateRequest.ids(IDS).tokens(0).logprobs(0).interventions(interventions);
  }

  private static ReadRequest compared(Interventions interventions) {
    return ReadRequest.ids(IDS).interventions(interventions);
  }

  private static List<Double> logprobs(Loupe loupe, Interventions interventions) {
    return loupe.run(reading(interventions)).getFirst().tokens().stream()
        .map(Token::logprob)
        .toList();
  }

  private static double[] softmax(double[] logits) {
    double sum = 0;
    double[] p = new double[logits.length];
    for (double logit : logits) {
      sum += Math.exp(logit);
    }
    for (int i = 0; i < p.length; i++) {
      p[i] = Math.exp(logits[i]) / sum;
    }
    return p;
  }

  private static void assertLogprobs(ReferenceGpt2 reference, List<Double> logprobs) {
    assertTrue(logprobs.getFirst().isNaN());
    for (int i = 1; i < IDS.length; i++) {
      double expected = Math.log(softmax(reference.logits[i - 1])[IDS[i]]);
      assertEquals(expected, logprobs.get(i), 2e-4, "token " + i);
    }
  }

  private static ReferenceGpt2.Change of(int layer, int head, ReferenceGpt2.Change change) {
    return (l, heads) -> {
      if (l == layer) {
        double[][] own = new double[heads.length][D];
        for (int i = 0; i < heads.length; i++) {
          System.arraycopy(heads[i], head * D, own[i], 0, D);
        }
        change.of(l, own);
        for (int i = 0; i < heads.length; i++) {
          System.arraycopy(own[i], 0, heads[i], head * D, D);
        }
      }
    };
  }

  private static ReferenceGpt2.Change times(double factor) {
    return (layer, own) -> {
      for (double[] row : own) {
        for (int i = 0; i < D; i++) {
          row[i] *= factor;
        }
      }
    };
  }

  private static final ReferenceGpt2.Change MEAN =
      (layer, own) -> {
        double[] mean = new double[D];
        for (double[] row : own) {
          for (int i = 0; i < D; i++) {
            mean[i] += row[i] / own.length;
          }
        }
        for (double[] row : own) {
          System.arraycopy(mean, 0, row, 0, D);
        }
      };

  private static ReferenceGpt2 reference(ReferenceGpt2.Change... changes) {
    return new ReferenceGpt2(
        checkpoint,
        checkpoint.config(),
        IDS,
        (layer, heads) -> {
          for (ReferenceGpt2.Change change : changes) {
            change.of(layer, heads);
          }
        });
  }

  @Test
  void headsThatAreLeftOutOrScaled() {
    assertLogprobs(
        reference(of(5, 0, times(0)), of(4, 0, times(-0.5)), of(4, 2, times(3))),
        logprobs(loupe, Interventions.NONE.scale(5, 0, 0).scale(4, 2, 3).scale(4, 0, -0.5)));
  }

  /** Of one layer: the mean of a later one is of the model as it is. */
  @Test
  void headsAtTheirMean() {
    assertLogprobs(
        reference(of(4, 0, MEAN), of(4, 1, MEAN)),
        logprobs(loupe, Interventions.NONE.mean(4, 0).mean(4, 1)));
    double[][] means = new double[6][];
    new ReferenceGpt2(
        checkpoint,
        checkpoint.config(),
        IDS,
        (layer, heads) -> {
          means[layer] = new double[3 * D];
          for (double[] row : heads) {
            for (int i = 0; i < row.length; i++) {
              means[layer][i] += row[i] / heads.length;
            }
          }
        });
    ReferenceGpt2 both =
        reference(
            (layer, heads) -> {
              for (double[] row : heads) {
                if (layer == 1 || layer == 4) {
                  System.arraycopy(means[layer], 0, row, 0, D);
                }
              }
            });
    assertLogprobs(both, logprobs(loupe, Interventions.NONE.mean(1, 0).mean(4, 0)));
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 6, 12})
  void otherHeads(int heads) {
    Gpt2Config config = checkpoint.config().withHeads(heads);
    ReferenceGpt2 reference = new ReferenceGpt2(checkpoint, config, IDS, (layer, own) -> {});
    assertLogprobs(reference, logprobs(loupe, Interventions.NONE.heads(heads)));
  }

  @Test
  void theModelIsAsItWas() {
    List<Double> before = logprobs(loupe, Interventions.NONE);
    List<Double> changed = logprobs(loupe, Interventions.NONE.scale(3, 1, 0));
    assertNotEquals(before, changed);
    assertEquals(before, logprobs(loupe, Interventions.NONE.scale(3, 1, 1)));
    assertEquals(before, logprobs(loupe, Interventions.NONE));
    assertEquals(changed, logprobs(loupe, Interventions.NONE.scale(3, 1, 0)));
  }

  /** Writing token by token sees the same changed model as reading at once. */
  @Test
  void whatIsWrittenIsReadTheSame() {
    Interventions changes = Interventions.NONE.scale(4, 0, 0).scale(5, 2, 2);
    GenerateRequest writing =
        GenerateRequest.text("ROMEO:").tokens(20).sampling(Sampling.greedy()).logprobs(0);
    List<Token> plain = loupe.run(writing).getFirst().tokens();
    List<Token> written = loupe.run(writing.interventions(changes)).getFirst().tokens();
    assertNotEquals(plain, written);
    int[] ids = written.stream().mapToInt(Token::id).toArray();
    List<Token> read =
        loupe
            .run(GenerateRequest.ids(ids).tokens(0).logprobs(0).interventions(changes))
            .getFirst()
            .tokens();
    for (int i = 0; i < ids.length; i++) {
      assertEquals(written.get(i).logprob(), read.get(i).logprob());
    }
  }

  @Test
  void mapsAreThoseOfTheChangedModel() {
    GenerateRequest request =
        reading(Interventions.NONE.scale(4, 0, 0)).attention(AttentionSelection.all());
    Generation run = loupe.run(request).getFirst();
    ReferenceGpt2 reference = reference(of(4, 0, times(0)));
    for (int query = 0; query < IDS.length; query++) {
      float[] row = run.attention().row(5, 0, query);
      for (int key = 0; key <= query; key++) {
        assertEquals(reference.attention[5][0][query][key], row[key], 1e-4);
      }
    }
  }

  @Test
  void aComparisonByHand() {
    Comparison comparison = loupe.compare(compared(Interventions.NONE.scale(4, 0, 0)));
    ReferenceGpt2 before = reference();
    ReferenceGpt2 after = reference(of(4, 0, times(0)));
    assertLogprobs(before, comparison.tokens().stream().map(Token::logprob).toList());
    assertLogprobs(after, comparison.logprobs());
    double beforeMean = 0;
    double afterMean = 0;
    for (int i = 0; i < IDS.length; i++) {
      double[] p = softmax(before.logits[i]);
      double[] q = softmax(after.logits[i]);
      double divergence = 0;
      for (int id = 0; id < p.length; id++) {
        divergence += p[id] * Math.log(p[id] / q[id]);
      }
      assertEquals(divergence, comparison.divergences().get(i), 1e-4 + 1e-3 * divergence);
      if (i > 0) {
        beforeMean += Math.log(softmax(before.logits[i - 1])[IDS[i]]) / (IDS.length - 1);
        afterMean += Math.log(softmax(after.logits[i - 1])[IDS[i]]) / (IDS.length - 1);
      }
    }
    assertEquals(beforeMean, comparison.meanBefore(), 1e-4);
    assertEquals(afterMean, comparison.meanAfter(), 1e-4);
    assertTrue(afterMean < beforeMean - 0.1, "head 4.0 matters here");
    for (int layer = 0; layer < 6; layer++) {
      for (int head = 0; head < 3; head++) {
        double variation = 0;
        for (int query = 0; query < IDS.length; query++) {
          for (int key = 0; key <= query; key++) {
            double p = before.attention[layer][head][query][key];
            variation += Math.abs(p - after.attention[layer][head][query][key]) / 2;
          }
        }
        assertEquals(variation / IDS.length, comparison.maps().get(layer).get(head), 1e-4);
      }
    }
    assertTrue(comparison.maps().get(5).get(2) > 0.08, "induction needs the previous token");
  }

  @Test
  void nothingChangedIsNoDifference() {
    Comparison same = loupe.compare(compared(Interventions.NONE.scale(2, 0, 1)));
    assertEquals(IDS.length, same.divergences().size());
    same.divergences().forEach(divergence -> assertEquals(0, divergence, 1e-12));
    same.maps().forEach(layer -> layer.forEach(variation -> assertEquals(0, variation)));
    assertEquals(same.meanBefore(), same.meanAfter());
    assertEquals(List.of(), loupe.compare(compared(Interventions.NONE.heads(6))).maps());
    Comparison one =
        loupe.compare(ReadRequest.ids(5).interventions(Interventions.NONE.scale(0, 0, 0)));
    assertTrue(Double.isNaN(one.meanBefore()) && one.divergences().size() == 1);
  }

  private static void refused(String message, Executable call) {
    assertEquals(message, assertThrows(IllegalArgumentException.class, call).getMessage());
  }

  @Test
  void whatCantBeChangedIsSaid() {
    refused(
        "there is no head 6.0: the model has layers 0..5 of heads 0..2",
        () -> logprobs(loupe, Interventions.NONE.scale(6, 0, 0)));
    refused(
        "there is no head 0.3: the model has layers 0..5 of heads 0..2",
        () -> logprobs(loupe, Interventions.NONE.mean(0, 3)));
    refused(
        "a width of 192 can't be cut into 5 heads",
        () -> logprobs(loupe, Interventions.NONE.heads(5)));
    refused("head 1.2 is changed twice", () -> Interventions.NONE.mean(1, 2).scale(1, 2, 0));
    refused("there is no head -1.0", () -> Interventions.NONE.mean(-1, 0));
    refused("head 1.2 times NaN: not a number", () -> Interventions.NONE.scale(1, 2, Double.NaN));
    refused("0 heads: not 1 or more", () -> Interventions.NONE.heads(0));
    assertEquals(IDS.length, logprobs(loupe, Interventions.NONE.heads(6).scale(0, 5, 0)).size());
  }

  @Test
  void narrowWeightsToo() throws Exception {
    List<Double> exact = logprobs(loupe, Interventions.NONE.scale(4, 0, 0).mean(5, 1));
    for (Precision precision : List.of(Precision.F16, Precision.BF16, Precision.INT8)) {
      Options options = Options.defaults().backend(Backend.CPU).threads(2).precision(precision);
      try (Loupe narrow = Loupe.open(Golden.DEMO_MODEL, options)) {
        List<Double> near = logprobs(narrow, Interventions.NONE.scale(4, 0, 0).mean(5, 1));
        for (int i = 1; i < exact.size(); i++) {
          assertEquals(exact.get(i), near.get(i), 0.3, precision.name());
        }
      }
    }
  }

  @OnGpu
  @Test
  void theGpuChangesTheSame() throws Exception {
    Path tiny = TinyModel.in(folder).folder();
    List<Interventions> all =
        List.of(
            Interventions.NONE.scale(0, 1, 0),
            Interventions.NONE.mean(1, 0).scale(0, 0, 2),
            Interventions.NONE.heads(4));
    Options options = Options.defaults();
    try (Loupe cpu = Loupe.open(tiny, options.backend(Backend.CPU).threads(2));
        Loupe gpu = Loupe.open(tiny, options.backend(Backend.CUDA))) {
      List<String> texts = new ArrayList<>();
      for (Interventions changes : all) {
        GenerateRequest request =
            GenerateRequest.text("To be or not")
                .tokens(6)
                .sampling(Sampling.greedy())
                .logprobs(0)
                .interventions(changes);
        ReadRequest read = ReadRequest.text("To be or not").interventions(changes);
        Generation expected = cpu.run(request).getFirst();
        Generation run = gpu.run(request).getFirst();
        assertEquals(expected.text(), run.text());
        for (int i = 1; i < run.tokens().size(); i++) {
          assertEquals(expected.tokens().get(i).logprob(), run.tokens().get(i).logprob(), 1e-4);
        }
        texts.add(expected.text());
        Comparison comparison = gpu.compare(read);
        Comparison onCpu = cpu.compare(read);
        for (int i = 0; i < onCpu.divergences().size(); i++) {
          assertEquals(onCpu.divergences().get(i), comparison.divergences().get(i), 1e-4);
        }
      }
      assertEquals(3, texts.size());
      assertThrows(BackendException.class, () -> gpu.run(reading(Interventions.NONE.heads(64))));
    }
  }
}
