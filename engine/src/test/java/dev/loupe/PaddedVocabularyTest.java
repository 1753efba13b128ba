package dev.loupe;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.attention.AttentionSelection;
import dev.loupe.generate.BatchReader;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Prompt;
import dev.loupe.generate.ReadRequest;
import dev.loupe.generate.Scheduler;
import dev.loupe.generate.Token;
import dev.loupe.interpret.Comparison;
import dev.loupe.interpret.HeadSurvey;
import dev.loupe.interpret.Lens;
import dev.loupe.model.Interventions;
import dev.loupe.model.ReferenceGpt2;
import dev.loupe.sampling.Sampling;
import dev.loupe.weights.Checkpoint;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.stream.IntStream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Rows that only pad a vocabulary are never chosen, named, ranked or counted, however large their
 * logits are; probabilities are those of the float64 reference over the tokens alone.
 */
class PaddedVocabularyTest {
  private static final int[] IDS = {5, 900, 1030, 77, 77, 1022, 13, 900, 2};
  private static final List<Integer> SAID =
      IntStream.concat(IntStream.range(0, 1024), IntStream.of(1030)).boxed().toList();

  @TempDir static Path folder;

  @BeforeAll
  static void make() throws Exception {
    TinyModel.padded(folder);
  }

  private static Loupe open(Backend backend) throws Exception {
    return Loupe.open(folder, Options.defaults().backend(backend).threads(2));
  }

  /** Log-probabilities [T][V] over the tokens; NaN elsewhere. */
  private static double[][] reference(int... ids) throws Exception {
    double[][] logprobs;
    try (Checkpoint checkpoint = Checkpoint.open(folder)) {
      logprobs = new ReferenceGpt2(checkpoint, ids).logits;
    }
    for (double[] row : logprobs) {
      assertTrue(Math.max(row[1050], row[1051]) > row[best(row)], "the padding is the largest");
      double sum = SAID.stream().mapToDouble(id -> Math.exp(row[id])).sum();
      for (int id = 0; id < row.length; id++) {
        row[id] = SAID.contains(id) ? row[id] - Math.log(sum) : Double.NaN;
      }
    }
    return logprobs;
  }

  private static int best(double[] row) {
    return SAID.stream().max(Comparator.comparingDouble(id -> row[id])).orElseThrow();
  }

  private static int rank(double[] row, int id) {
    return (int) SAID.stream().filter(other -> row[other] > row[id]).count();
  }

  private static void check(double[] expected, int id, double logprob, int rank) {
    assertEquals(expected[id], logprob, 1e-4);
    assertTrue(Math.abs(rank(expected, id) - rank) <= 1, "rank " + rank);
  }

  private static void everythingIsOfTokens(Backend backend) throws Exception {
    double[][] expected = reference(IDS);
    int last = IDS.length - 1;
    try (Loupe loupe = open(backend);
        Scheduler scheduler = loupe.scheduler(2)) {
      GenerateRequest greedy =
          GenerateRequest.ids(IDS).tokens(6).sampling(Sampling.greedy()).logprobs(1030);
      List<Token> tokens = loupe.run(greedy).getFirst().tokens();
      assertEquals(tokens, scheduler.run(greedy).getFirst().tokens().stream().toList());
      for (int i = 1; i < IDS.length; i++) {
        check(expected[i - 1], IDS[i], tokens.get(i).logprob(), tokens.get(i).rank());
      }
      assertEquals(best(expected[last]), tokens.get(IDS.length).id());
      for (Token token : tokens.subList(1, tokens.size())) {
        assertEquals(SAID.size(), token.top().size());
        double sum = token.top().stream().mapToDouble(c -> Math.exp(c.logprob())).sum();
        assertEquals(1, sum, 1e-5);
        assertTrue(SAID.containsAll(token.top().stream().map(Token.Candidate::id).toList()));
        if (token.generated()) {
          assertEquals(0, token.rank());
        }
      }
      GenerateRequest drawn =
          GenerateRequest.ids(IDS).tokens(20).sampling(Sampling.seeded(3).withTopK(2));
      loupe.run(drawn).getFirst().tokens().forEach(t -> assertTrue(SAID.contains(t.id())));
      loupe
          .run(drawn.sampling(new Sampling(0.7, 0, 0.9, 0, 1, 0.5, 0, 3)))
          .getFirst()
          .tokens()
          .forEach(t -> assertTrue(SAID.contains(t.id()), "chosen on the host"));

      Lens lens = loupe.lens(Prompt.ids(IDS), -1, -1, 4);
      assertEquals(best(expected[last]), lens.target());
      Lens.Guess guess = lens.layers().getLast();
      check(expected[last], lens.target(), guess.logprob(), guess.rank());
      double mean = SAID.stream().mapToDouble(id -> expected[last][id]).average().orElseThrow();
      assertEquals(expected[last][lens.target()] - mean, lens.logit(), 1e-3);
      double sum = lens.token() + lens.place() + lens.normBias();
      for (int layer = 0; layer < lens.mlps().size(); layer++) {
        sum += lens.attentionBiases().get(layer) + lens.mlps().get(layer);
        sum += lens.heads().get(layer).stream().mapToDouble(v -> v).sum();
      }
      assertEquals(lens.logit(), sum, 1e-3);
      for (Lens.Guess each : lens.layers()) {
        assertTrue(SAID.containsAll(each.top().stream().map(Token.Candidate::id).toList()));
      }
      for (int id : new int[] {1024, 1029, 1031, 1050, 1100, 5000}) {
        assertThrows(IllegalArgumentException.class, () -> loupe.lens(Prompt.ids(1), 0, id, 1));
        assertThrows(IllegalArgumentException.class, () -> loupe.run(GenerateRequest.ids(1, id)));
      }

      Interventions half = Interventions.NONE.scale(1, 0, 0.5);
      Comparison comparison = loupe.compare(ReadRequest.ids(IDS).interventions(half));
      for (int i = 1; i < IDS.length; i++) {
        Token token = comparison.tokens().get(i);
        check(expected[i - 1], IDS[i], token.logprob(), token.rank());
        assertTrue(comparison.divergences().get(i) < 1, "of tokens, not of padding");
      }

      try (BatchReader reader = loupe.batchReader(Optional.empty(), true, 64)) {
        List<BatchReader.Result> results = new ArrayList<>();
        reader.read(List.of(IDS, new int[] {1, 1050}).iterator()).forEachRemaining(results::add);
        double all = 0;
        for (int i = 1; i < IDS.length; i++) {
          all += expected[i - 1][IDS[i]];
        }
        assertEquals(all, results.getFirst().logprob(), 1e-3);
        assertTrue(results.get(1).error().orElseThrow().contains("1050"));
      }
      HeadSurvey.sequences(loupe.info().config(), loupe.tokenizer())
          .forEach(ids -> IntStream.of(ids).forEach(id -> assertTrue(SAID.contains(id))));
      assertTrue(loupe.read("To be", AttentionSelection.all()).maps().isPresent());
    }
  }

  @Test
  void onTheCpu() throws Exception {
    everythingIsOfTokens(Backend.CPU);
  }

  @OnGpu
  @Test
  void onTheGpu() throws Exception {
    everythingIsOfTokens(Backend.CUDA);
  }
}
