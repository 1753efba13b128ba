package dev.loupe.interpret;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import dev.loupe.attention.AttentionMaps;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.attention.HeadRole;
import dev.loupe.attention.HeadScore;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Prompt;
import dev.loupe.model.Golden;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CancellationException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What is found of the demo model's heads, whose README says what they were taught. */
class HeadSurveyTest {
  private static Loupe loupe;
  private static String text;

  @TempDir Path folder;

  @BeforeAll
  static void open() throws Exception {
    loupe = Loupe.open(Golden.DEMO_MODEL, Options.defaults().backend(Backend.CPU).threads(2));
    text = Files.readString(Golden.TEST_DATA.resolve("golden/heldout/text.txt")).substring(0, 9000);
  }

  @AfterAll
  static void close() {
    loupe.close();
  }

  private static List<int[]> sequences(int length) {
    return HeadSurvey.sequences(loupe.info().config(), loupe.tokenizer(), length);
  }

  @Test
  void theDemoModelsHeadsDoWhatTheyWereTaught() {
    HeadSurvey survey = loupe.heads(Prompt.text(text));
    for (int layer = 0; layer < 6; layer++) {
      for (int head = 0; head < 3; head++) {
        Optional<HeadRole> expected =
            layer == 5 || (layer == 3 && head == 1)
                ? Optional.of(HeadRole.INDUCTION)
                : layer == 4 && head == 0 ? Optional.of(HeadRole.PREVIOUS_TOKEN) : Optional.empty();
        assertEquals(expected, survey.role(layer, head), layer + "." + head);
      }
    }
    // 0.97, 0.98, 0.97 and 0.60 of the queries that repeat, which are 50 of the diagonal's 52
    for (int head = 0; head < 3; head++) {
      assertEquals(0.97 * 50 / 52, survey.score(HeadScore.INDUCTION, 5, head), 0.03);
    }
    assertEquals(0.60 * 50 / 52, survey.score(HeadScore.INDUCTION, 3, 1), 0.06);
    assertTrue(survey.score(HeadScore.PREVIOUS_TOKEN, 4, 0) > 0.9, "on random tokens");
    HeadStatistics onText = survey.onText().orElseThrow();
    assertEquals(0.80, onText.score(HeadScore.PREVIOUS_TOKEN, 4, 0), 0.04);
    assertEquals(0.34, onText.score(HeadScore.PREVIOUS_TOKEN, 1, 0), 0.03);
    double sink = 0;
    for (int layer = 0; layer < 6; layer++) {
      for (int head = 0; head < 3; head++) {
        sink = Math.max(sink, survey.score(HeadScore.FIRST_TOKEN, layer, head));
      }
    }
    assertEquals(0.15, sink, 0.03, "at most, in 5.0 and 5.1");
    assertEquals(
        sink,
        Math.max(
            survey.score(HeadScore.FIRST_TOKEN, 5, 0), survey.score(HeadScore.FIRST_TOKEN, 5, 1)));
  }

  @Test
  void randomSequencesComeTwice() {
    Set<Integer> firsts = new HashSet<>();
    for (int[] ids : sequences(50)) {
      assertEquals(101, ids.length);
      assertEquals(1023, ids[0], "BOS");
      int[] once = Arrays.copyOfRange(ids, 1, 51);
      assertArrayEquals(once, Arrays.copyOfRange(ids, 51, 101));
      assertEquals(50, Arrays.stream(once).distinct().count());
      assertTrue(Arrays.stream(once).noneMatch(id -> id == 1023));
      firsts.add(ids[1]);
    }
    assertEquals(HeadSurvey.SEQUENCES, firsts.size(), "they differ");
  }

  /** Means of diagonals over all sequences, as TransformerLens' demos take them. */
  @Test
  void scoresOnRepeatedTokensAreMeansOfDiagonals() {
    HeadSurvey survey = loupe.heads(Prompt.text(""));
    double[] sums = new double[3];
    for (int[] ids : sequences(50)) {
      AttentionMaps maps =
          loupe
              .run(GenerateRequest.ids(ids).tokens(0).attention(AttentionSelection.all().layers(3)))
              .getFirst()
              .attention();
      int[] offsets = {1, 50, 49};
      for (int i = 0; i < 3; i++) {
        double sum = 0;
        for (int query = offsets[i]; query < 101; query++) {
          sum += maps.row(3, 1, query)[query - offsets[i]];
        }
        sums[i] += sum / (101 - offsets[i]);
      }
    }
    HeadStatistics random = survey.onRepeated();
    assertEquals(sums[0] / 10, random.score(HeadScore.PREVIOUS_TOKEN, 3, 1), 1e-6);
    assertEquals(sums[1] / 10, random.score(HeadScore.DUPLICATE_TOKEN, 3, 1), 1e-6);
    assertEquals(sums[2] / 10, random.score(HeadScore.INDUCTION, 3, 1), 1e-6);
    assertEquals(1010, random.tokens());
    assertTrue(survey.onText().isEmpty());
    assertEquals(0, survey.windows());
    assertEquals(
        random.score(HeadScore.ENTROPY, 2, 0), survey.score(HeadScore.ENTROPY, 2, 0), "no text");
  }

  /** Windows of the context, each by itself, make one mean over all their queries. */
  @Test
  void aLongTextIsCutIntoWindows() {
    int[] ids = Arrays.copyOf(loupe.tokenizer().encode(text, false), 2 * 256 + 40);
    HeadSurvey survey = loupe.heads(Prompt.ids(ids));
    assertEquals(3, survey.windows());
    assertEquals(3, survey.windowsRead());
    HeadStatistics onText = survey.onText().orElseThrow();
    assertEquals(ids.length, onText.tokens());
    double sum = 0;
    for (int from = 0; from < ids.length; from += 256) {
      int[] window = Arrays.copyOfRange(ids, from, Math.min(ids.length, from + 256));
      AttentionMaps maps =
          loupe
              .run(
                  GenerateRequest.ids(window)
                      .tokens(0)
                      .attention(AttentionSelection.all().layers(4)))
              .getFirst()
              .attention();
      for (int query = 1; query < window.length; query++) {
        sum += maps.row(4, 2, query)[0];
      }
    }
    assertEquals(sum / (ids.length - 3), onText.score(HeadScore.FIRST_TOKEN, 4, 2), 1e-6);
    assertTrue(
        onText.edges(4, 2, false).stream().anyMatch(edge -> edge.query() >= 256),
        "edges are of the whole text");
    assertTrue(
        onText.edges(4, 2, false).stream()
            .allMatch(edge -> edge.query() / 256 == edge.key() / 256));
  }

  @Test
  void aShortTextNamesNoHead() {
    HeadSurvey survey = loupe.heads(Prompt.text("hello"));
    assertTrue(survey.onText().orElseThrow().score(HeadScore.FIRST_TOKEN, 5, 0) > 0.9);
    assertEquals(Optional.of(HeadRole.INDUCTION), survey.role(5, 0));
  }

  private static HeadSurvey endedAfter(int sequences, int layers) {
    int[] ids = Arrays.copyOf(loupe.tokenizer().encode(text, false), 4 * 256);
    return loupe.heads(
        Prompt.ids(ids),
        (done, all) -> {
          assertEquals(14 * 6, all);
          return done < 6 * sequences + layers;
        });
  }

  @Test
  void whoeverHasEnoughKeepsWhatWasRead() {
    HeadSurvey two = endedAfter(HeadSurvey.SEQUENCES + 2, 3);
    assertEquals(2, two.windowsRead());
    assertEquals(4, two.windows());
    assertEquals(512, two.onText().orElseThrow().tokens());
    HeadSurvey none = endedAfter(HeadSurvey.SEQUENCES, 5);
    assertTrue(none.onText().isEmpty());
    assertEquals(0, none.windowsRead());
    assertEquals(4, none.windows());
    assertThrows(CancellationException.class, () -> endedAfter(HeadSurvey.SEQUENCES - 1, 2));
  }

  @Test
  void anySmallModelWillDo() throws Exception {
    try (Loupe tiny =
        Loupe.open(
            TinyModel.in(folder).folder(), Options.defaults().backend(Backend.CPU).threads(1))) {
      HeadSurvey survey = tiny.heads(Prompt.text(text));
      int length = survey.onRepeated().repeated();
      assertEquals(Math.min(50, (tiny.info().config().nPositions() - 1) / 2), length);
      assertTrue(survey.score(HeadScore.WEIGHTED_NORM, 0, 0) > 0);
    }
  }

  @Test
  void idsOutsideTheVocabularyAreRefused() {
    assertThrows(IllegalArgumentException.class, () -> loupe.heads(Prompt.ids(1, 5000)));
  }
}
